"""Which windows are published, by which runs: file by file, as the table's manifests tell it.

A manifest never changes, and says of each data file its day, its bounds and its run: it is read once, and what it
says is kept in a summary of the table. Rows are read only of the files that somebody asks for, and once of a file
that another program wrote over several days or runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import Status, list_runs
from backstream.lake.metadata_pointers import find_metadata_location
from backstream.runs.file_summaries import load_summary
from backstream.runs.home import Home
from backstream.runs.results import undone_run_id

if TYPE_CHECKING:
    import pyarrow as pa

START, END, RUN = "window_start", "window_end", "run_id"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A data file: UTC days, in ms, and runs of its rows, the first start of a window in it and the last end."""

    path: str
    runs: frozenset[tuple[int, str]]
    first_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class PublishedWindows:
    """The data files of a dataset as its table was when they were looked up; none without a table.

    `publications` are the ranges that runs published, as the table's snapshots tell it, the newest first.
    """

    home: Home
    dataset: str
    files: tuple[PublishedFile, ...] = ()
    publications: tuple[tuple[Interval, str], ...] = ()
    location: str | None = None

    def rows(self, wanted: Callable[[PublishedFile], bool], keys: Sequence[str]) -> pa.Table:
        """Key columns, window and run of the rows of some files; null where the table has no such key column."""
        paths = {file.path for file in self.files if wanted(file)}
        if self.location is None or not paths:
            import pyarrow as pa

            return pa.table({name: pa.nulls(0) for name in (*keys, START, END, RUN)})
        from backstream.lake import window_files

        return window_files.scan_window_keys(self.home, self.location, paths, keys)

    def runs_by_day(self) -> dict[int, set[str]]:
        """UTC day, in ms, to the runs that published it; where it has no rows, the newest run that covers it."""
        found: dict[int, set[str]] = {}
        for file in self.files:
            for day_ms, run_id in file.runs:
                found.setdefault(day_ms, set()).add(run_id)
        for interval, run_id in self._ranges():
            for day_ms in range(interval.start_ms, interval.end_ms, DAY_MS):
                if day_ms not in found:
                    found[day_ms] = {run_id}
        return found

    def _ranges(self) -> Iterator[tuple[Interval, str]]:
        """What runs published, the newest first; neither a run that was rolled back nor its rollback did."""
        undone: set[str] = set()
        for interval, run_id in self._all_publications():
            if run_id in undone:
                continue
            if (of_run := undone_run_id(run_id)) is not None:
                undone.add(of_run)
            else:
                yield interval, run_id

    def _all_publications(self) -> Iterator[tuple[Interval, str]]:
        """As snapshots tell it, and the ledger where they were expired; the newest first."""
        if self.location is None:
            return
        yield from self.publications
        for run in list_runs(self.home, self.dataset):
            if run.status in (Status.PUBLISHED, Status.ALREADY_PUBLISHED):
                yield Interval(run.since_ms, run.until_ms), run.run_id


def load_published_windows(home: Home, dataset: str) -> PublishedWindows:
    """The files of a dataset."""
    location = find_metadata_location(home, dataset)
    if location is None:
        return PublishedWindows(home, dataset)
    place, what = home.summary(f"windows-{dataset}"), f"table `{dataset}`"
    summary = load_summary(place, what)
    if summary is None or summary.get("of") != location:
        from backstream.lake import window_files

        summary = window_files.summarize_window_files(home, dataset, summary)
    files = (
        PublishedFile(path, frozenset((day_ms, run_id) for day_ms, run_id in days), first_ms, end_ms)
        for of_manifest in summary["manifests"].values()
        for path, days, first_ms, end_ms in of_manifest
    )
    publications = tuple(
        (Interval(start_ms, end_ms), run_id) for start_ms, end_ms, run_id in summary["publications"]
    )
    return PublishedWindows(home, dataset, tuple(files), publications, summary["of"])
