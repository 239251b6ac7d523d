"""Read run files and ledger for the pages; cache each file until it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import TypeVar

from backstream.errors import BackstreamError
from backstream.lake import ledger
from backstream.lake.ledger import RunRow
from backstream.pages.checks import CheckRow
from backstream.runs.dataset_state import DatasetState, DayTotals, load_day_totals
from backstream.runs.home import Home, RunFolder

_MAX_CACHED = 4_096
_ABSENT = 0

_Content = TypeVar("_Content")


def cached_by_mtime(read: Callable[[Path], _Content]) -> Callable[[Path], _Content]:
    """Return a function that calls `read` again only when the modification time of the file changes."""

    @lru_cache(maxsize=_MAX_CACHED)
    def read_cached(path: Path, modified_ns: int) -> _Content:
        del modified_ns  # The cache compares it; the reader does not need it.
        return read(path)

    @wraps(read)
    def read_if_changed(path: Path) -> _Content:
        return read_cached(path, _modified_ns(path))

    return read_if_changed


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return _ABSENT


@dataclass(frozen=True, slots=True)
class PageStore:
    """Reader of one home; `version` is the version of the ledger at the time of the request."""

    home: Home
    version: str

    @classmethod
    def from_home(cls, home: Home) -> PageStore:
        """Return a reader for the current version of the ledger.

        Raises:
            LedgerError, SetupError: when the catalog is not reachable.
        """
        return cls(home, ledger.ledger_version(home))

    def runs(self, dataset: str) -> tuple[RunRow, ...]:
        """Return the ledger rows of a dataset, newest first."""
        return _runs_of(self.home, self.version, dataset)

    def all_runs(self) -> tuple[RunRow, ...]:
        """Return the ledger rows of all datasets, newest first."""
        return _runs(self.home, self.version)

    def datasets(self) -> set[str]:
        """Return the names of the datasets with recorded runs."""
        return {row.dataset for row in _runs(self.home, self.version)}

    def checks(self, dataset: str, run_ids: frozenset[str]) -> tuple[CheckRow, ...]:
        """Return the check results of some runs of a dataset."""
        return _checks(self.home, self.version, dataset, run_ids)

    def figures(self, dataset: str, run_id: str) -> dict[int, DayTotals]:
        """Return the totals of a run by day in ms; empty if the run has none."""
        return load_figures(self.home, dataset, run_id)

    def modified_ns(self, dataset: str) -> tuple[int, ...]:
        """Return the modification times of the files that the days of a dataset are derived from."""
        files = [
            self.home.observation(dataset),
            *(self.folder(dataset, row.run_id).day_totals for row in self.runs(dataset)),
        ]
        return tuple(map(_modified_ns, files))

    def observation(self, dataset: str) -> DatasetState | None:
        """Return the newest scan of a dataset; None if there is none, or the file is not readable."""
        return load_observation(self.home, dataset)

    def folder(self, dataset: str, run_id: str) -> RunFolder:
        """Return the folder of a run."""
        return self.home.run(dataset, run_id)


def load_figures(home: Home, dataset: str, run_id: str) -> dict[int, DayTotals]:
    """Return the totals of a run by day in ms; empty if the run has none."""
    return _load_totals(home.run(dataset, run_id).day_totals)


def load_observation(home: Home, dataset: str) -> DatasetState | None:
    """Return the newest scan of a dataset; None if there is none, or the file is not readable."""
    try:
        return DatasetState.read(home.observation(dataset))
    except (BackstreamError, KeyError, TypeError):
        return None


@lru_cache(maxsize=2)
def _runs(home: Home, version: str) -> tuple[RunRow, ...]:
    return tuple(ledger.list_runs(home)) if version else ()


@lru_cache(maxsize=_MAX_CACHED)
def _runs_of(home: Home, version: str, dataset: str) -> tuple[RunRow, ...]:
    return tuple(row for row in _runs(home, version) if row.dataset == dataset)


@lru_cache(maxsize=32)
def _checks(home: Home, version: str, dataset: str, run_ids: frozenset[str]) -> tuple[CheckRow, ...]:
    if not version:
        return ()
    names = CheckRow.__dataclass_fields__
    return tuple(
        CheckRow(**{name: row[name] for name in names}) for row in ledger.list_checks(home, dataset, run_ids)
    )


@cached_by_mtime
def _load_totals(path: Path) -> dict[int, DayTotals]:
    try:
        return {day.day_ms: day for day in load_day_totals(path)}
    except (BackstreamError, KeyError, TypeError, ValueError):
        return {}
