"""Files that appear complete or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from capplan.errors import CapplanError


@contextlib.contextmanager
def written_whole(path: str | Path, error_type: type[CapplanError] = CapplanError) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` in one step when the block ends well.

    A link's target is replaced, not the link; a device or a pipe is written to as it is.

    Raises
    ------
    CapplanError
        Of `error_type`: the file cannot be written.
    """
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            yield target
            return
        partial = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
        try:
            yield partial
            partial.replace(target)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise error_type(f"{path}: {error.strerror or error}; a writable path is needed") from error
