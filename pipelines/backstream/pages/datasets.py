"""List datasets, and load the state of one dataset for the pages."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from backstream.definition.folder import list_definition_files
from backstream.definition.loader import load_definition
from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, SECOND_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow
from backstream.pages.days import CalendarDay, DayRange, DayStatus, calendar_days, consecutive_days
from backstream.pages.runs import BACKFILL, dataset_of_dag
from backstream.pages.store import PageStore, cached_by_mtime
from backstream.runs.dataset_state import DatasetState, DayTotals
from backstream.runs.home import definitions_folders
from backstream.runs.status import RunStatus
from backstream.workflow.status import RunState, list_unfinished_runs

_RECENT_DAYS = 90
_ATTENTION = (DayStatus.FAILED, DayStatus.STALE, DayStatus.FAIL, DayStatus.MISSING)
_STANDING = (DayStatus.FAIL, DayStatus.WARN, DayStatus.PASS)
"""Verdicts of published days, the worst first."""
_NAMED = (DayStatus.FAILED, DayStatus.STALE, DayStatus.FAIL, DayStatus.WARN, DayStatus.MISSING, DayStatus.OPEN)
"""Statuses that the badge of a dataset counts, the most severe first."""


@dataclass(frozen=True, slots=True)
class DefinitionEntry:
    """A definition file: its content, or its problem."""

    name: str
    definition: Definition | None
    problem: str
    path: Path


@dataclass(frozen=True)
class Dataset:
    """Current state of one dataset; `runs` are its ended runs, newest first, `unended` all others."""

    name: str
    defined: DefinitionEntry | None
    runs: tuple[RunRow, ...]
    unended: tuple[RunState, ...]
    days: tuple[CalendarDay, ...]
    seen: DatasetState | None
    now_ms: int

    @property
    def dag_id(self) -> str:
        """DAG of its backfill runs."""
        return BACKFILL + self.name

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
        days_ms = [day.day_ms for day in self.days if day.run_id]
        return Interval(days_ms[0], days_ms[-1] + DAY_MS) if days_ms else None

    @cached_property
    def recent(self) -> list[DayTotals]:
        """Totals of the last published days."""
        return [day.figures for day in self.days if day.figures][-_RECENT_DAYS:]

    @cached_property
    def attention(self) -> list[DayRange]:
        """Ranges of days that need attention, newest first."""
        return consecutive_days(self.days, _ATTENTION)

    @cached_property
    def verdict(self) -> str:
        """Worst verdict of the published days, whichever run ended last; `none` without published days."""
        standing = {day.verdict for day in self.days}
        return next((verdict.value for verdict in _STANDING if verdict in standing), "none")

    @cached_property
    def issues(self) -> list[tuple[DayStatus, int]]:
        """Number of days by status, without those that are as intended."""
        return [(status, count) for status in _NAMED if (count := self.count(status))]

    def count(self, status: DayStatus) -> int:
        """Return the number of days with a status."""
        return sum(day.status is status for day in self.days)

    @property
    def stale_windows(self) -> int:
        """Number of windows that are known to be stale."""
        return sum(note.windows for note in self.seen.stale) if self.seen else 0

    def day(self, day_ms: int) -> CalendarDay | None:
        """Return one day; None for a day outside the history."""
        index = bisect_left(self.days, day_ms, key=lambda day: day.day_ms)
        return self.days[index] if index < len(self.days) and self.days[index].day_ms == day_ms else None


def list_dataset_names(records: PageStore, dag_ids: Collection[str]) -> list[str]:
    """Return the names of datasets with a definition or a recorded run whose DAG is in `dag_ids`."""
    return sorted(name for name in _names(records) if BACKFILL + name in dag_ids)


def load_dataset(records: PageStore, name: str) -> Dataset:
    """Return the state of one dataset.

    Raises:
        LedgerError: when the catalog is not reachable.
    """
    now_ms = int(time.time() * SECOND_MS)
    runs = records.runs(name)
    unended = tuple(list_unfinished_runs(records.home, name, {row.run_id for row in runs}, now_ms))
    seen = records.observation(name)
    busy = [run.interval for run in unended if run.state.is_active and run.interval]
    days = calendar_days(runs, lambda run_id: records.figures(name, run_id), seen, busy)
    return Dataset(name, find_definition_entry(name), runs, unended, tuple(days), seen, now_ms)


def find_dataset(records: PageStore, dag_id: str) -> Dataset | None:
    """Return the dataset of a DAG; None for a DAG of another project, or an unknown dataset.

    A dataset has three DAGs: `backfill_`, `restate_`, and `reprocess_`.
    """
    name = dataset_of_dag(dag_id)
    return load_dataset(records, name) if name and name in _names(records) else None


def _names(records: PageStore) -> set[str]:
    return {entry.name for entry in list_definition_entries()} | records.datasets()


def sum_day_totals(figures: Sequence[DayTotals]) -> DayTotals | None:
    """Return the sums over days; None without days."""
    if not figures:
        return None
    fields = list(DayTotals.__dataclass_fields__)[1:]
    return DayTotals(figures[0].day_ms, *(sum(getattr(day, name) for day in figures) for name in fields))


def is_published_run(run: RunRow) -> bool:
    """Return whether a run published its rows."""
    return run.status is RunStatus.PUBLISHED


def find_definition_entry(name: str) -> DefinitionEntry | None:
    """Return the definition file of a dataset; None if there is none."""
    return next((entry for entry in list_definition_entries() if entry.name == name), None)


def list_definition_entries() -> list[DefinitionEntry]:
    """Return all definition files, valid or not."""
    return [_load_entry(path) for path in list_definition_files(*definitions_folders())]


@cached_by_mtime
def _load_entry(path: Path) -> DefinitionEntry:
    try:
        definition = load_definition(path)
    except SpecError as error:
        return DefinitionEntry(path.stem, None, str(error), path)
    return DefinitionEntry(definition.name, definition, "", path)
