"""Bars on a terminal for what takes long: what is done, how fast, and how long the rest will take."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def show_reading(sources: Iterable[str]) -> Iterator[None]:
    """Show how much of the sources is read, where stderr is a terminal; the bar is gone at the end."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from capplan.readers import files
    from capplan.readers.sources import expand_sources

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    n_bytes = sum(files.find_size(path) for paths in expand_sources(Path(s) for s in sources) for path in paths)
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=n_bytes or None)
        with files.watching(lambda n_read: bar.update(task, advance=n_read)):
            yield


@contextmanager
def show_simulating() -> Iterator[None]:
    """Show how many capacities are simulated, where stderr is a terminal; the bar is gone at the end."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from capplan.simulation import parallel

    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=None)
        with parallel.watching(lambda n_done, n_all: bar.update(task, completed=n_done, total=n_all)):
            yield
