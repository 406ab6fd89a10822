"""Readers: a source in any known format becomes a checked, prefix-linked Trace.

`read_trace` detects the format from content; every format is one module with `NAME`, `CARRIES`,
`matches(sample)` and `read(path, options, account)`, which yields Prompts in emission order.
"""

from pathlib import Path
from types import ModuleType

from capplan.errors import TraceError
from capplan.linking import link_prompts
from capplan.readers import block_hashes, canonical, kv_cache_tester, mooncake, token_ids
from capplan.readers.sample import Account, Options, take_sample
from capplan.schema import LARGEST_TOKENS
from capplan.trace import Trace

LINKED = (kv_cache_tester, mooncake, token_ids, block_hashes)
FORMATS: dict[str, ModuleType] = {module.NAME: module for module in (canonical, *LINKED)}


def read_trace(path: str | Path, format: str = "auto", *, block_size: int | None = None, ids: str = "chained") -> Trace:
    """Read a trace of any known format.

    Parameters
    ----------
    path : str or Path
        A file, or a folder of kv-cache-tester sessions.
    format : str
        "auto" detects it from the content; else a name of `FORMATS`.
    block_size : int, optional
        Tokens per block hash, where the source does not say.
    ids : "chained" or "content"
        Refuse block hashes that are not prefix-chained, or chain them anew.

    Returns
    -------
    Trace
        Checked; its `notes` say what was found, assumed or left out.

    Raises
    ------
    TraceError
        One line: file, row or line, what is wrong, what would be accepted.
    """
    if format != "auto" and format not in FORMATS:
        raise ValueError(f"format is {format!r}; accepted: 'auto', {', '.join(map(repr, FORMATS))}")
    if block_size is not None and not 1 <= block_size <= LARGEST_TOKENS:
        raise ValueError(f"block_size is {block_size}; 1 to {LARGEST_TOKENS} is accepted")
    path = Path(path)
    reader = FORMATS[format] if format != "auto" else detect_format(path)
    if reader is canonical:
        if block_size is not None:
            raise TraceError(f"{path}: --block-size is given, but a linked trace states its own resolution")
        return canonical.read(path)
    account = Account()
    batches = reader.read(path, Options(block_size), account)
    trace = link_prompts(batches, path.name, ids=ids)
    rechained = ids == "content" and reader is not token_ids
    return account.annotate(trace, reader.NAME, rechained)


def detect_format(path: Path) -> ModuleType:
    """The reader whose format the content has; raises TraceError naming what was found."""
    sample = take_sample(path)
    for reader in FORMATS.values():
        if reader.matches(sample):
            return reader
    raise TraceError(
        f"{path}: no known trace format ({sample.describe()}); accepted: "
        + "; ".join(f"{name} ({module.CARRIES})" for name, module in FORMATS.items())
    )
