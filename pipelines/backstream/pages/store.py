"""Files that are read for every page, and seldom change: what was read is kept until the file is another."""

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

_KEPT = 4_096
_ABSENT = 0

_Content = TypeVar("_Content")


def cached_by_mtime(read: Callable[[Path], _Content]) -> Callable[[Path], _Content]:
    """The same function, which reads a file again only when its time of change is another."""

    @lru_cache(maxsize=_KEPT)
    def known(path: Path, modified_ns: int) -> _Content:
        del modified_ns  # it is there to be compared
        return read(path)

    @wraps(read)
    def reading(path: Path) -> _Content:
        return known(path, _modified_ns(path))

    return reading


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return _ABSENT


@dataclass(frozen=True, slots=True)
class PageStore:
    """Reads of one home. `version` is that of the ledger when the page was asked for."""

    home: Home
    version: str

    @classmethod
    def from_home(cls, home: Home) -> PageStore:
        """As they are now.

        Raises:
            LedgerError, SetupError: when the catalog cannot be reached.
        """
        return cls(home, ledger.ledger_version(home))

    def runs(self, dataset: str) -> tuple[RunRow, ...]:
        """The outcomes of a dataset's runs, newest first."""
        return tuple(row for row in _runs(self.home, self.version) if row.dataset == dataset)

    def datasets(self) -> set[str]:
        """Those that any run was recorded of."""
        return {row.dataset for row in _runs(self.home, self.version)}

    def checks(self, dataset: str) -> tuple[CheckRow, ...]:
        """What checks of a dataset found."""
        return _checks(self.home, self.version, dataset)

    def figures(self, dataset: str, run_id: str) -> dict[int, DayTotals]:
        """What a run counted, by day in ms; empty where it left none."""
        return _figures(self.home.run(dataset, run_id).day_totals)

    def observation(self, dataset: str) -> DatasetState | None:
        """The newest look at a dataset; None when nobody has looked, or it cannot be read."""
        try:
            return DatasetState.read(self.home.observation(dataset))
        except (BackstreamError, KeyError, TypeError):
            return None

    def folder(self, dataset: str, run_id: str) -> RunFolder:
        """Where a run that is in the ledger has left its files."""
        return self.home.run(dataset, run_id)


@lru_cache(maxsize=2)
def _runs(home: Home, version: str) -> tuple[RunRow, ...]:
    return tuple(ledger.list_runs(home)) if version else ()


@lru_cache(maxsize=32)
def _checks(home: Home, version: str, dataset: str) -> tuple[CheckRow, ...]:
    if not version:
        return ()
    names = CheckRow.__dataclass_fields__
    return tuple(CheckRow(**{name: row[name] for name in names}) for row in ledger.list_checks(home, dataset))


@cached_by_mtime
def _figures(path: Path) -> dict[int, DayTotals]:
    try:
        return {each.day_ms: each for each in load_day_totals(path)}
    except (BackstreamError, KeyError, TypeError, ValueError):
        return {}
