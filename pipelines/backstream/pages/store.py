"""Read run files and ledger for the pages; cache each file until it changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, wraps
from pathlib import Path
from typing import TypeVar

from backstream import formatting
from backstream.errors import BackstreamError, CatalogError, StorageError
from backstream.eventtime.instants import SECOND_MS, instant_text
from backstream.lake import ledger, ledger_tables  # noqa: F401 - the limit of a call is not for imports
from backstream.lake.catalog_address import CatalogAddress
from backstream.lake.ledger import RunRow
from backstream.lake.run_rows import list_untold_runs, newest_first
from backstream.pages.checks import CheckRow
from backstream.pages.time_limits import LimitedCalls, NoResponseError
from backstream.runs.dataset_state import DatasetState, DayTotals, load_day_totals
from backstream.runs.home import Home, RunFolder
from backstream.runs.plan_summary import PlanSummary
from backstream.runs.results import Audit, Publication
from backstream.runs.status import RunStatus
from backstream.runs.store import Runs
from backstream.text import text_logger

log = text_logger(__name__)

_CATALOG = LimitedCalls("the catalog")

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


@dataclass(frozen=True)
class PageStore:
    """Reader of one home for one request.

    `version` is the version of the ledger, `rows` are its rows, newest first. `notice` is a sentence about what
    the pages cannot show because the catalog does not respond; empty if it does.
    """

    home: Home
    version: str = ""
    rows: tuple[RunRow, ...] = ()
    notice: str = ""

    @classmethod
    def from_home(cls, home: Home) -> PageStore:
        """Return a reader of the current ledger; of the recorded rows if the catalog does not respond.

        Raises:
            SetupError: when the address of the catalog is invalid.
        """
        try:
            version = _CATALOG.call(("version", home), partial(ledger.ledger_version, home))
            rows = _CATALOG.call(("runs", home, version), partial(_load_rows, home, version))
            untold = _CATALOG.call(("untold runs", home, version), partial(list_untold_runs, home, rows))
        except (NoResponseError, CatalogError, StorageError) as error:
            return cls._from_files(home, str(error).partition("\n")[0])
        if untold:
            version = " ".join([version, *(row.run_id for row in untold)])
            rows = tuple(newest_first([*rows, *untold]))
        return cls(home, version, rows) if version else cls._from_files(home, "")

    @classmethod
    def _from_files(cls, home: Home, problem: str) -> PageStore:
        """Return a reader of what the files of the home record, with a sentence about what is missing.

        Without a problem, the catalog has no ledger: then rows that were recorded show that it is gone.
        """
        rows, known_ms = _list_recorded_runs(home)
        if not problem and not rows:
            return cls(home)
        facts = problem or f"the catalog {_catalog_text(home)} has no ledger, although runs are recorded"
        since = f" since {instant_text(known_ms // SECOND_MS * SECOND_MS)}" if known_ms else ""
        notice = (
            f"{facts}. This page shows what the files of the runs record: failed runs and rollbacks{since} may be "
            "missing."
        )
        return cls(home, f"files {len(rows)} {known_ms}", tuple(rows), formatting.sentence(notice))

    def require_complete(self) -> None:
        """Check that nothing is missing, for files that programs read.

        Raises:
            CatalogError: when the catalog does not respond.
        """
        if self.notice:
            raise CatalogError(self.notice)

    def ask_catalog(self, question: Hashable, ask: Callable[[], _Content]) -> _Content | None:
        """Return the answer of the catalog to a question; None if it does not respond."""
        try:
            return _CATALOG.call((question, self.home, self.version), ask)
        except (NoResponseError, CatalogError) as error:
            log.warning("%s", error)
            return None

    @cached_property
    def _rows_by_dataset(self) -> Mapping[str, tuple[RunRow, ...]]:
        found: dict[str, list[RunRow]] = {}
        for row in self.rows:
            found.setdefault(row.dataset, []).append(row)
        return {dataset: tuple(rows) for dataset, rows in found.items()}

    def runs(self, dataset: str) -> tuple[RunRow, ...]:
        """Return the ledger rows of a dataset, newest first."""
        return self._rows_by_dataset.get(dataset, ())

    def datasets(self) -> set[str]:
        """Return the names of the datasets with recorded runs."""
        return set(self._rows_by_dataset)

    def checks(self, dataset: str, run_ids: frozenset[str]) -> tuple[CheckRow, ...]:
        """Return the check results of some runs of a dataset, from their files if the catalog does not respond."""
        ask = partial(_load_checks, self.home, self.version, dataset, run_ids)
        found = self.ask_catalog(("checks", dataset, run_ids), ask)
        return _list_recorded_checks(self.home, dataset, run_ids) if found is None else found

    def modified_ns(self, dataset: str) -> tuple[int, ...]:
        """Return the modification times of the files that the days of a dataset are derived from."""
        files = [
            self.home.dataset_state(dataset),
            *(self.home.run(dataset, row.run_id).day_totals for row in self.runs(dataset)),
        ]
        return tuple(map(_modified_ns, files))


def find_day_totals(home: Home, dataset: str, run_id: str) -> dict[int, DayTotals]:
    """Return the totals of a run by day in ms; empty if the run has none."""
    return _read_day_totals(home.run(dataset, run_id).day_totals)


def load_dataset_state(home: Home, dataset: str) -> DatasetState | None:
    """Return the newest scan of a dataset; None if there is none, or the file is not readable."""
    try:
        return DatasetState.read(home.dataset_state(dataset))
    except (BackstreamError, KeyError, TypeError):
        return None


@lru_cache(maxsize=2)
def _load_rows(home: Home, version: str) -> tuple[RunRow, ...]:
    return tuple(ledger.list_recorded_runs(home)) if version else ()


@lru_cache(maxsize=32)
def _load_checks(home: Home, version: str, dataset: str, run_ids: frozenset[str]) -> tuple[CheckRow, ...]:
    if not version:
        return ()
    names = CheckRow.__dataclass_fields__
    return tuple(
        CheckRow(**{name: row[name] for name in names}) for row in ledger.list_checks(home, dataset, run_ids)
    )


def _list_recorded_runs(home: Home) -> tuple[list[RunRow], int]:
    """Return the last known rows of the ledger with those of newer run folders, and the time of the former in ms.

    A run folder records neither a failure nor a rollback, so these are known from the ledger only.
    """
    known, known_ms = ledger.list_known_runs(home)
    ended = {(row.run_id, row.status) for row in known}
    found = (row for folder in Runs(home).of_dataset() if (row := _find_row(folder)))
    rows = [*known, *(row for row in found if (row.run_id, row.status) not in ended)]
    return newest_first(rows), known_ms


def _find_row(folder: RunFolder) -> RunRow | None:
    """Return the outcome of a run that its files show; None without one."""
    is_published = folder.publication.is_file()
    if not is_published and not folder.audit_result.is_file():
        return None
    try:
        audit = Audit.read(folder.audit_result) if folder.audit_result.is_file() else None
        if not is_published and (audit is None or audit.may_publish):
            return None
        plan = PlanSummary.read(folder.summary)
        rows = Publication.read(folder.publication).rows if is_published else None
        times_ms = [
            path.stat().st_mtime_ns // 1_000_000
            for path in (folder.plan, folder.publication if is_published else folder.audit_result)
        ]
    except (BackstreamError, OSError, TypeError):
        return None
    return RunRow(
        run_id=plan.run_id,
        dataset=plan.dataset,
        status=RunStatus.PUBLISHED if is_published else RunStatus.REFUSED,
        verdict=audit.verdict if audit else None,
        mode=plan.mode,
        since_ms=plan.since_ms,
        until_ms=plan.until_ms,
        triggered_by=plan.triggered_by,
        reason=plan.reason,
        definition_hash="",
        plan_hash=plan.plan_hash,
        planned_by_version="",
        rows=rows,
        events_read=None,
        started_at_ms=times_ms[0],
        finished_at_ms=times_ms[1],
    )


def _list_recorded_checks(home: Home, dataset: str, run_ids: Iterable[str]) -> tuple[CheckRow, ...]:
    """Return the check results of some runs from their audits; a run without a readable audit is left out."""
    found: list[CheckRow] = []
    names = CheckRow.__dataclass_fields__.keys() - {"run_id"}
    for run_id in sorted(run_ids):
        with suppress(BackstreamError, OSError, KeyError, TypeError):
            checks = Audit.read(home.run(dataset, run_id).audit_result).checks
            found += [CheckRow(run_id, **{name: getattr(check, name) for name in names}) for check in checks]
    return tuple(found)


def _catalog_text(home: Home) -> str:
    return CatalogAddress.from_home(home).display_text


@cached_by_mtime
def _read_day_totals(path: Path) -> dict[int, DayTotals]:
    try:
        return {day.day_ms: day for day in load_day_totals(path)}
    except (BackstreamError, KeyError, TypeError, ValueError):
        return {}
