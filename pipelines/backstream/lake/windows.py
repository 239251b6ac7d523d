"""Which windows are published, by which runs: keys, bounds and run ids, without the values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue

from backstream.core.folders import Home
from backstream.core.instants import DAY_MS, epoch_ms
from backstream.core.intervals import Interval
from backstream.core.windows import TimeWindow
from backstream.lake import history
from backstream.lake.catalog import NAMESPACE, opened
from backstream.lake.filters import within
from backstream.lake.history import run_undone
from backstream.lake.ledger import Status, runs

_BOUNDS = ("window_start", "window_end", "run_id")


@dataclass(frozen=True, slots=True)
class PublishedWindow:
    """One row of a dataset, without its values; `key` holds those of the key columns asked for."""

    key: tuple[Any, ...]
    window: TimeWindow
    run_id: str

    @property
    def day_ms(self) -> int:
        """The UTC day that it belongs to."""
        return self.window.start_ms - self.window.start_ms % DAY_MS


def published_windows(
    home: Home, dataset: str, keys: Sequence[str], interval: Interval | None = None
) -> list[PublishedWindow]:
    """The rows of a dataset, of the windows that start in the interval when given; none without a table."""
    with opened(home) as catalog:
        try:
            table = catalog.load_table((NAMESPACE, dataset))
        except NoSuchTableError:
            return []
        wanted = within("window_start", interval) if interval else AlwaysTrue()
        known = [name for name in keys if name in table.schema().column_names]
        found = table.scan(row_filter=wanted, selected_fields=(*known, *_BOUNDS)).to_arrow()
    columns = [found[name].to_pylist() if name in known else [None] * found.num_rows for name in keys]
    places = zip(*(found[name].to_pylist() for name in _BOUNDS), strict=True)
    keyed = zip(*columns, strict=True) if columns else [()] * found.num_rows
    return [
        PublishedWindow(tuple(key), TimeWindow(epoch_ms(start), epoch_ms(end)), run_id)
        for key, (start, end, run_id) in zip(keyed, places, strict=True)
    ]


def runs_by_day(home: Home, dataset: str, rows: Sequence[PublishedWindow]) -> dict[int, set[str]]:
    """UTC day, in ms, to the runs that published it; where it has no rows, the newest run that covers it."""
    found: dict[int, set[str]] = {}
    for row in rows:
        found.setdefault(row.day_ms, set()).add(row.run_id)
    for interval, run_id in _ranges(home, dataset):
        for day_ms in range(interval.start_ms, interval.end_ms, DAY_MS):
            found.setdefault(day_ms, {run_id})
    return found


def _ranges(home: Home, dataset: str) -> Iterator[tuple[Interval, str]]:
    """What runs published, the newest first; a run that was rolled back, and its rollback, published nothing."""
    undone: set[str] = set()
    for interval, run_id in _publications(home, dataset):
        if run_id in undone:
            continue
        if (of_run := run_undone(run_id)) is not None:
            undone.add(of_run)
        else:
            yield interval, run_id


def _publications(home: Home, dataset: str) -> Iterator[tuple[Interval, str]]:
    """As snapshots tell it, and the ledger where they were expired; the newest first."""
    with opened(home) as catalog:
        try:
            table = catalog.load_table((NAMESPACE, dataset))
        except NoSuchTableError:
            return
    for snapshot in history.lineage(table):
        interval, run_id = history.interval_of(snapshot), history.said(snapshot, history.RUN_ID)
        if interval and run_id:
            yield interval, run_id
    for run in runs(home, dataset):
        if run.status in (Status.PUBLISHED, Status.ALREADY_PUBLISHED):
            yield Interval(run.since_ms, run.until_ms), run.run_id
