"""Publish: side tables first, then the one commit that says what is now true of a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from backstream.core.errors import ContractError
from backstream.core.folders import Home
from backstream.core.instants import DAY_MS, instant_text
from backstream.core.intervals import require_aligned
from backstream.core.manifest import Manifest, StagedFile
from backstream.core.plan import Plan, PlannedTable
from backstream.core.publication import Publication
from backstream.core.tables import WINDOWS
from backstream.lake import history
from backstream.lake.catalog import loaded, opened
from backstream.lake.commits import committed, with_retries
from backstream.lake.data_files import described
from backstream.lake.filters import within
from backstream.lake.schemas import require_as_planned
from backstream.lake.staging import checked_files, require_complete

Staged = Mapping[str, Sequence[StagedFile]]


def publish(plan: Plan, manifests: Sequence[Manifest], home: Home | None = None) -> Publication:
    """Replace exactly the plan's range by what its chunks staged; doing it again changes nothing.

    Raises:
        PlanError: when the range does not consist of whole UTC days.
        LedgerError: when a chunk left no manifest, or a table or the catalog is not there.
        ContractError: when a staged file or a chunk's count of fates is not what it promised.
        ConflictError: when another run published into the range since this one was planned.
    """
    _require_whole_days(plan)
    with opened(home or Home(Path(plan.home))) as catalog:
        if done := history.snapshot_of(loaded(catalog, plan.tables[WINDOWS].name), plan.run_id):
            return _publication(catalog, plan, done, already=True)
        require_complete(plan, manifests)
        staged = {suffix: checked_files(plan, suffix, manifests) for suffix in plan.tables}
        # Once before anything is written, so that a run which lost leaves nothing; again at each attempt.
        history.require_unmoved(loaded(catalog, plan.tables[WINDOWS].name), plan)
        append_side_tables(catalog, plan, staged)
        return _windows_replaced(catalog, plan, staged[WINDOWS])


def append_side_tables(catalog: Catalog, plan: Plan, staged: Staged) -> None:
    """Append what was staged for each table but the windows, once per run.

    Readers take the rows of published runs only, so that a run which ends here leaves nothing visible.
    """
    for suffix in plan.tables:
        if suffix != WINDOWS and staged[suffix]:
            _appended(catalog, plan, suffix, staged[suffix])


def _appended(catalog: Catalog, plan: Plan, suffix: str, files: Sequence[StagedFile]) -> None:
    name, run_id = plan.tables[suffix].name, plan.run_id
    added = _data_files(loaded(catalog, name), plan.tables[suffix], files)
    said = history.properties(plan, _rows(files), 0, len(files))

    def attempt() -> None:
        table = loaded(catalog, name)
        if history.snapshot_of(table, run_id) is None:
            committed(table, Operation.APPEND, added, [], said)

    with_retries(f"append to table `{name}`", attempt)


def _windows_replaced(catalog: Catalog, plan: Plan, files: Sequence[StagedFile]) -> Publication:
    name, run_id = plan.tables[WINDOWS].name, plan.run_id
    added = _data_files(loaded(catalog, name), plan.tables[WINDOWS], files)

    def attempt() -> Publication:
        table = loaded(catalog, name)
        if done := history.snapshot_of(table, run_id):
            return _publication(catalog, plan, done, already=True)
        history.require_unmoved(table, plan)
        removed = _files_within(table, plan)
        said = history.properties(plan, _rows(files), sum(file.record_count for file in removed), len(files))
        snapshot = committed(table, Operation.OVERWRITE, added, removed, said)
        return _publication(catalog, plan, snapshot, already=False)

    return with_retries(f"publish {plan.dataset} {plan.range}", attempt)


def _data_files(table: Table, planned: PlannedTable, files: Sequence[StagedFile]) -> list[DataFile]:
    require_as_planned(table, planned)
    return [described(table, file) for file in files]


def _files_within(table: Table, plan: Plan) -> list[DataFile]:
    """The table's files whose windows start in the plan's range: whole files, because each holds one day."""
    column = plan.tables[WINDOWS].day_column or ""
    files = [task.file for task in table.scan(row_filter=within(column, plan.range)).plan_files()]
    days = range(plan.since_ms // DAY_MS, plan.until_ms // DAY_MS)
    if spilling := [each for each in files if not _is_one_day(table, each, days)]:
        first = spilling[0].file_path
        msg = f"table `{plan.dataset}` has a file that is not of one day of {plan.range}\n  {first}"
        raise ContractError(msg)
    return files


def _is_one_day(table: Table, file: DataFile, days: range) -> bool:
    """Written under another partitioning, a file may reach beyond the range: removing it would lose rows."""
    return file.spec_id == table.spec().spec_id and file.partition[0] in days


def _require_whole_days(plan: Plan) -> None:
    require_aligned(plan.since_ms, "since", DAY_MS, 0, "the table's days in UTC")
    require_aligned(plan.until_ms, "until", DAY_MS, 0, "the table's days in UTC")


def _publication(catalog: Catalog, plan: Plan, main: Snapshot, *, already: bool) -> Publication:
    snapshots, run_id = {WINDOWS: main.snapshot_id}, plan.run_id
    for suffix, table in plan.tables.items():
        if side := history.snapshot_of(loaded(catalog, table.name), run_id):
            snapshots[suffix] = side.snapshot_id
    return Publication(
        run_id=run_id,
        dataset=plan.dataset,
        since_ms=plan.since_ms,
        until_ms=plan.until_ms,
        snapshots=snapshots,
        rows=history.count(main, history.ROWS),
        replaced_rows=history.count(main, history.REPLACED_ROWS),
        files=history.count(main, history.FILES),
        published_at=instant_text(main.timestamp_ms),
        already=already,
    )


def _rows(files: Sequence[StagedFile]) -> int:
    return sum(file.rows for file in files)
