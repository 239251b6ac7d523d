"""List datasets, and load the state of one dataset for the pages."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import islice

from backstream.eventtime.instants import DAY_MS, SECOND_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow
from backstream.pages.days import (
    CalendarDay,
    DayRange,
    DaySpan,
    DayStatus,
    DayTotalsOf,
    calendar_days,
    consecutive_days,
    find_day_spans,
)
from backstream.pages.definitions import DefinitionEntry, find_definition_entry, load_definition_entries
from backstream.pages.runs import load_requests_once
from backstream.pages.store import PageStore, find_day_totals, load_dataset_state
from backstream.runs.dag_names import BACKFILL, dag_id_of, dataset_of_dag
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals
from backstream.runs.garbage_collection import pause_garbage_collection
from backstream.runs.home import Home
from backstream.runs.status import RunStatus
from backstream.workflow.run_state import RunState
from backstream.workflow.status import RunRecords, list_unfinished_runs

_RECENT_DAYS = 90
_MAX_CACHED = 512
"""Datasets whose days are kept between requests."""
_ATTENTION = (DayStatus.FAILED, DayStatus.STALE, DayStatus.FAIL, DayStatus.MISSING)
_STANDING = (DayStatus.FAIL, DayStatus.WARN, DayStatus.PASS)
"""Verdicts of published days, the worst first."""
_NAMED = (DayStatus.FAILED, DayStatus.STALE, DayStatus.FAIL, DayStatus.WARN, DayStatus.MISSING, DayStatus.OPEN)
"""Statuses that the badge of a dataset counts, the most severe first."""


@dataclass(frozen=True)
class Dataset:
    """Current state of one dataset; `runs` are its ended runs, newest first, `unended` all others.

    `spans` are its days. The totals of days are read only for the days that are shown.
    """

    name: str
    defined: DefinitionEntry | None
    runs: tuple[RunRow, ...]
    unended: tuple[RunState, ...]
    spans: tuple[DaySpan, ...]
    seen: DatasetState | None
    now_ms: int
    day_totals: DayTotalsOf

    @property
    def dag_id(self) -> str:
        """DAG of its backfill runs."""
        return dag_id_of(BACKFILL, self.name)

    @property
    def is_untouched(self) -> bool:
        """Return whether the dataset has no runs."""
        return not self.runs and not self.unended

    @property
    def running(self) -> list[RunState]:
        """The runs under way."""
        return [run for run in self.unended if run.state.is_active]

    @property
    def awaiting_approval(self) -> list[RunState]:
        """The runs that wait for an approver."""
        return [run for run in self.unended if run.state is RunStatus.AWAITING_APPROVAL]

    @property
    def interrupted_runs(self) -> list[RunState]:
        """The runs that were begun and leave no sign of life any more."""
        return [run for run in self.unended if run.state is RunStatus.INTERRUPTED]

    @cached_property
    def newest(self) -> RunRow | None:
        """Run that ended last."""
        return self.runs[0] if self.runs else None

    @cached_property
    def published_range(self) -> Interval | None:
        """Range from the first to the last published day; days in between can be missing."""
        published = [span.interval for span in self.spans if span.run_id]
        return Interval(published[0].start_ms, published[-1].end_ms) if published else None

    @cached_property
    def days(self) -> list[CalendarDay]:
        """All days in order, with their totals."""
        return list(calendar_days(self.spans, self.day_totals))

    @cached_property
    def recent(self) -> list[DayTotals]:
        """Totals of the last published days."""
        totals = (
            found
            for span in reversed(self.spans)
            if span.run_id
            for day_ms in reversed(span.days)
            if (found := self.day_totals(span.run_id).get(day_ms))
        )
        return list(islice(totals, _RECENT_DAYS))[::-1]

    @cached_property
    def attention(self) -> list[DayRange]:
        """Ranges of days that need attention, newest first."""
        return consecutive_days(self.spans, _ATTENTION)

    @cached_property
    def verdict(self) -> str:
        """Worst verdict of the published days, whichever run ended last; `none` without published days."""
        standing = {span.verdict for span in self.spans}
        return next((verdict.value for verdict in _STANDING if verdict in standing), "none")

    @cached_property
    def issues(self) -> list[tuple[DayStatus, int]]:
        """Number of days by status, without those that are as intended."""
        return [(status, count) for status in _NAMED if (count := self.count(status))]

    @cached_property
    def counts(self) -> Counter[DayStatus]:
        """Number of days by status."""
        counts = Counter[DayStatus]()
        for span in self.spans:
            counts[span.status] += len(span.days)
        return counts

    def count(self, status: DayStatus) -> int:
        """Return the number of days with a status."""
        return self.counts[status]

    @cached_property
    def stale(self) -> list[DayIssue]:
        """Known issues of the published days whose input has changed since."""
        return [span.note for span in self.spans if span.note and span.note.kind == "stale"]

    @property
    def stale_windows(self) -> int:
        """Number of windows that are known to be stale."""
        return sum(issue.windows for issue in self.stale)

    def day(self, day_ms: int) -> CalendarDay | None:
        """Return one day; None for a day outside the history."""
        index = bisect_right(self.spans, day_ms, key=lambda span: span.interval.start_ms) - 1
        if index < 0 or day_ms not in self.spans[index].days:
            return None
        one_day = self.spans[index]._replace(interval=Interval(day_ms, day_ms + DAY_MS))
        return next(calendar_days([one_day], self.day_totals))


def load_datasets(records: PageStore, dag_ids: Collection[str]) -> list[Dataset]:
    """Return the datasets with a definition or a recorded run whose DAG is in `dag_ids`, by name.

    The DAG is `backfill_<dataset>`, or a team's own DAG that has requested a run of the dataset in a task group.

    Raises:
        LedgerError: when the catalog is not reachable.
    """
    entries = load_definition_entries()
    names = sorted(entries.keys() | records.datasets())
    with pause_garbage_collection():  # the first request reads files of all runs
        return [
            _load_dataset(records, name, entries.get(name))
            for name in names
            if dag_id_of(BACKFILL, name) in dag_ids or _is_run_by_team(records.home, name, dag_ids)
        ]


def _is_run_by_team(home: Home, name: str, dag_ids: Collection[str]) -> bool:
    return any(request.task_group and request.dag_id in dag_ids for request in load_requests_once(home, name))


def _load_dataset(records: PageStore, name: str, entry: DefinitionEntry | None) -> Dataset:
    """Return the state of one dataset.

    Raises:
        LedgerError: when the catalog is not reachable.
    """
    now_ms = int(time.time() * SECOND_MS)
    runs = records.runs(name)
    unended = tuple(list_unfinished_runs(records.home, name, RunRecords(runs, load_requests_once), now_ms))
    busy = tuple(run.interval for run in unended if run.state.is_active and run.interval)
    spans = _load_spans(records.home, name, runs, records.modified_ns(name), busy)
    day_totals = partial(find_day_totals, records.home, name)
    return Dataset(name, entry, runs, unended, spans, load_dataset_state(records.home, name), now_ms, day_totals)


@lru_cache(maxsize=_MAX_CACHED)
def _load_spans(
    home: Home, name: str, runs: tuple[RunRow, ...], modified_ns: tuple[int, ...], busy: tuple[Interval, ...]
) -> tuple[DaySpan, ...]:
    """Return the days of a dataset; the ledger rows and the times of the other files are the key of the cache."""
    del modified_ns
    return tuple(find_day_spans(runs, partial(find_day_totals, home, name), load_dataset_state(home, name), busy))


def find_dataset(records: PageStore, dag_id: str) -> Dataset | None:
    """Return the dataset of a DAG; None for a DAG of another project, or an unknown dataset.

    A dataset has the DAGs `backfill_`, `restate_`, and `reprocess_`, and for a streaming job also `keep_batches_`.
    """
    name = dataset_of_dag(dag_id)
    entry = find_definition_entry(name) if name else None
    return _load_dataset(records, name, entry) if name and (entry or name in records.datasets()) else None


def sum_day_totals(day_totals: Sequence[DayTotals]) -> DayTotals | None:
    """Return the sums over days; None without days."""
    if not day_totals:
        return None
    fields = DayTotals._fields[1:]
    return DayTotals(day_totals[0].day_ms, *(sum(getattr(day, name) for day in day_totals) for name in fields))
