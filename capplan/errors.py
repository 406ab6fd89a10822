"""Errors a user can act on; everything else is a bug and keeps its traceback."""


class CapplanError(Exception):
    """Root of all errors capplan raises on purpose: one line saying where, what and what would do."""


class TraceError(CapplanError):
    """A trace cannot be read, or does not say what planning needs."""


class SpecError(CapplanError):
    """A GPU, model or capacity cannot be used as given."""
