"""List the published windows and their runs, data file by data file.

A manifest never changes, and has the day, bounds, and run of each data file. Each manifest is read once, and its
entries are kept in a summary of the table. Rows are read only from requested files, and once from a file that
another program wrote over several days or runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import list_recorded_runs
from backstream.lake.metadata_pointers import find_metadata_location
from backstream.runs.file_summaries import load_summary
from backstream.runs.home import Home
from backstream.runs.results import undone_run_id
from backstream.runs.status import RunStatus
from backstream.runs.table_schemas import WINDOW_END, WINDOW_START

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A data file: the UTC days (in ms) and runs of its rows, its first window start, and its last window end."""

    path: str
    runs: frozenset[tuple[int, str]]
    first_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The snapshot of a run: the range that it published, its time, and the number of rows."""

    interval: Interval
    run_id: str
    at_ms: int
    rows: int


@dataclass(frozen=True, slots=True)
class PublishedWindows:
    """The data files of a dataset at the time of loading; none if there is no table.

    `commits` are those of runs, from the table's snapshots, newest first.
    """

    home: Home
    dataset: str
    files: tuple[PublishedFile, ...] = ()
    commits: tuple[Commit, ...] = ()
    location: str | None = None

    def rows(self, is_wanted: Callable[[PublishedFile], bool], keys: Sequence[str]) -> pa.Table:
        """Return key columns, window, and run of the rows of some files; a key that the table lacks is null."""
        paths = {file.path for file in self.files if is_wanted(file)}
        if self.location is None or not paths:
            import pyarrow as pa

            return pa.table({name: pa.nulls(0) for name in (*keys, WINDOW_START, WINDOW_END, "run_id")})
        from backstream.lake import window_files

        return window_files.scan_window_keys(self.home, self.dataset, self.location, paths, keys)

    def runs_by_day(self) -> dict[int, set[str]]:
        """Return the runs by published UTC day (in ms); for a day without rows, the newest run that covers it."""
        runs: dict[int, set[str]] = {}
        for file in self.files:
            for day_ms, run_id in file.runs:
                runs.setdefault(day_ms, set()).add(run_id)
        for interval, run_id in self._effective_publications():
            for day_ms in range(interval.start_ms, interval.end_ms, DAY_MS):
                if day_ms not in runs:
                    runs[day_ms] = {run_id}
        return runs

    def _effective_publications(self) -> Iterator[tuple[Interval, str]]:
        """Yield ranges and their runs, newest first, without rolled-back runs and without rollbacks."""
        undone: set[str] = set()
        for interval, run_id in self._all_publications():
            if run_id in undone:
                continue
            if (undone_id := undone_run_id(run_id)) is not None:
                undone.add(undone_id)
            else:
                yield interval, run_id

    def _all_publications(self) -> Iterator[tuple[Interval, str]]:
        """Yield the ranges from snapshots, and from the ledger for expired snapshots, newest first."""
        if self.location is None:
            return
        yield from ((commit.interval, commit.run_id) for commit in self.commits)
        for run in list_recorded_runs(self.home, self.dataset):
            if run.status is RunStatus.PUBLISHED:
                yield Interval(run.since_ms, run.until_ms), run.run_id


def load_published_windows(home: Home, dataset: str) -> PublishedWindows:
    """Return the published files of a dataset; a table that changed since the last call is summarized again."""
    location = find_metadata_location(home, dataset)
    if location is None:
        return PublishedWindows(home, dataset)
    summary = load_summary(home.summary(f"windows-{dataset}"), f"table `{dataset}`")
    if summary is None or summary.get("of") != location:
        from backstream.lake import window_files

        summary = window_files.summarize_window_files(home, dataset, summary)
    files = (
        PublishedFile(path, frozenset((day_ms, run_id) for day_ms, run_id in days), first_ms, end_ms)
        for manifest in summary["manifests"].values()
        for path, days, first_ms, end_ms in manifest
    )
    commits = tuple(
        Commit(Interval(start_ms, end_ms), run_id, at_ms, rows)
        for start_ms, end_ms, run_id, at_ms, rows in summary["commits"]
    )
    return PublishedWindows(home, dataset, tuple(files), commits, summary["of"])
