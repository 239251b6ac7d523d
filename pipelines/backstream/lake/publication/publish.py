"""Publish a run: append to the side tables, then replace the range of the windows in one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import IcebergType

from backstream.errors import ConflictError
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import require_aligned
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_reading, open_catalog_for_writing
from backstream.lake.commit import commit_snapshot, note_attempt, with_retries
from backstream.lake.diff import Replacement
from backstream.lake.maintenance import protect_staged_files
from backstream.lake.publication.conflicts import require_no_conflict
from backstream.lake.publication.data_files import copy_staged_files, to_data_files
from backstream.lake.publication.ownership import TableOwner, record_owner
from backstream.lake.publication.planned_tables import LoadedTables, create_tables, require_planned_schema
from backstream.lake.publication.range_copies import RangeCopy, copy_range, require_copyable
from backstream.lake.publication.restatements import append_restatements
from backstream.lake.publication.staged_files import check_staged_files, require_complete_staging
from backstream.lake.published_runs import find_rollback_of, load_publication
from backstream.lake.scans import list_files
from backstream.lake.snapshots import ensure_tag, tag_names
from backstream.lake.tables import find_table, iceberg_type
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Plan
from backstream.runs.results import Publication
from backstream.runs.table_schemas import WINDOWS

_StagedFiles = Mapping[str, Sequence[StagedFile]]


def publish_range(plan: Plan, manifests: Sequence[Manifest], home: Home | None = None) -> Publication:
    """Replace exactly the plan's range with the staged rows of its chunks; a second call changes nothing.

    Raises:
        PlanError: if the range is not aligned to UTC days, a newer version created a table, another definition
            writes the dataset, or the table of `[publish]` cannot take the rows.
        LedgerError: if a chunk has no manifest, or a table or the catalog is missing.
        ContractError: if a staged file, the counts of a chunk, or a table differs from the plan.
        ConflictError: if another run published into the range since this one was planned, or this one was rolled
            back.
    """
    _require_whole_days(plan)
    home = home or plan.home
    with open_catalog_for_writing(home) as catalog:
        copy = None if plan.folder.publication.exists() else RangeCopy.from_plan(plan)
        if copy:
            require_copyable(catalog, copy, _column_types(plan))
        publication = _publish_windows(catalog, plan, manifests, home)
        if copy:
            copy_range(catalog, copy)
        return publication


def _column_types(plan: Plan) -> dict[str, IcebergType]:
    return {name: iceberg_type(kind) for name, kind, *_ in plan.tables[WINDOWS].columns}


def _publish_windows(catalog: Catalog, plan: Plan, manifests: Sequence[Manifest], home: Home) -> Publication:
    existing = find_table(catalog, plan.tables[WINDOWS].name)
    if existing and (publication := _find_publication(catalog, existing, plan, home)):
        return publication
    require_complete_staging(plan, manifests)
    protect_staged_files(plan, manifests)
    staged = {suffix: check_staged_files(plan, suffix, manifests) for suffix in plan.tables}
    tables = create_tables(catalog, plan)
    # The first check is before any write, so that a refused run leaves no rows. Each attempt checks again.
    require_no_conflict(tables.windows, plan)
    with note_attempt(f"publish {plan.dataset} {plan.range}"):
        added = _import_files(tables, WINDOWS, staged[WINDOWS])
    appended = append_side_tables(tables, staged)
    replacement = _plan_replacement(tables.windows, plan, added)
    changed_values = append_restatements(catalog, plan.dataset, replacement)
    return _commit_windows(tables, added, changed_values, appended)


def preview_replacement(catalog: Catalog, plan: Plan, manifests: Sequence[Manifest]) -> Replacement:
    """Return what a run would replace if it were published now, without writing anything.

    Raises:
        LedgerError: if a chunk has no manifest, or the table is missing.
        ContractError: if a staged file differs from its manifest.
    """
    require_complete_staging(plan, manifests)
    table = load_table(catalog, plan.tables[WINDOWS].name)
    require_planned_schema(table, plan.tables[WINDOWS])
    staged = to_data_files(table, check_staged_files(plan, WINDOWS, manifests))
    return _plan_replacement(table, plan, staged)


def _plan_replacement(table: Table, plan: Plan, added: Sequence[DataFile]) -> Replacement:
    """Return the files that a plan's new files replace in the table as it was loaded."""
    removed = list_files(table, plan.range)
    properties = snapshots.summary_properties(plan, _count_rows(added), _count_rows(removed), len(added))
    return Replacement(table, removed, added, snapshots.key_columns_of_plan(plan), properties)


def find_commit(plan: Plan) -> Publication | None:
    """Return the publication of a run from its snapshot, even if it was undone; None without a snapshot."""
    with open_catalog_for_reading(plan.home) as catalog:
        table = find_table(catalog, plan.tables[WINDOWS].name)
        snapshot = snapshots.find_commit_of_run(table, plan.run_id) if table else None
        return _publication(plan, snapshot, _find_appends(catalog, plan), already=True) if snapshot else None


def _find_publication(catalog: Catalog, table: Table, plan: Plan, home: Home) -> Publication | None:
    """Return the publication of an earlier attempt, from its commit or, if that is unknown, from the ledger."""
    if undo_id := find_rollback_of(home, table, plan.run_id):
        raise _rolled_back_error(plan, undo_id)
    if snapshot := snapshots.find_commit_of_run(table, plan.run_id):
        if table.snapshot_by_id(snapshot.snapshot_id):
            ensure_tag(catalog, plan.tables[WINDOWS].name, plan.run_id, snapshot.snapshot_id)
        return _publication(plan, snapshot, _find_appends(catalog, plan), already=True)
    return load_publication(plan, home) if snapshots.is_history_expired(table) else None


def _rolled_back_error(plan: Plan, undo_id: str) -> ConflictError:
    return ConflictError(
        f"refusing to publish {plan.dataset} {plan.range}: this run was published, and then rolled back\n"
        f"  {plan.run_id} was undone by {undo_id}\n\n"
        f"hint: plan the range again, or undo the rollback: backstream rollback {undo_id}"
    )


def append_side_tables(tables: LoadedTables, staged: _StagedFiles) -> dict[str, Snapshot]:
    """Append the staged files of each table except the windows, once per run; return the snapshots by suffix.

    Readers ignore the rows of unpublished runs. If the run fails after this step, the rows stay invisible.
    """
    suffixes = [suffix for suffix in tables.plan.tables if suffix != WINDOWS and staged[suffix]]
    return {suffix: _append_files(tables, suffix, staged[suffix]) for suffix in suffixes}


def _append_files(tables: LoadedTables, suffix: str, files: Sequence[StagedFile]) -> Snapshot:
    table, plan = tables.by_suffix[suffix], tables.plan
    what = f"append to table `{plan.tables[suffix].name}`"
    if appended := snapshots.find_append_of_run(table, plan.run_id):
        return appended
    with note_attempt(what):
        added = _import_files(tables, suffix, files)
    properties = snapshots.summary_properties(plan, sum(file.rows for file in files), 0, len(files))

    def attempt() -> Snapshot:
        appended = snapshots.find_append_of_run(table, plan.run_id)
        return appended or commit_snapshot(table, Operation.APPEND, added, [], properties)

    return with_retries(what, attempt, table)


def _commit_windows(
    tables: LoadedTables, added: Sequence[DataFile], changed_values: int, appended: Mapping[str, Snapshot]
) -> Publication:
    table, plan = tables.windows, tables.plan

    def attempt() -> Publication:
        if published := snapshots.find_commit_of_run(table, plan.run_id):
            return _publication(plan, published, appended, already=True)
        require_no_conflict(table, plan)
        record_owner(table, TableOwner.from_plan(plan))
        replacement = _plan_replacement(table, plan, added)
        snapshot = commit_snapshot(
            table,
            Operation.OVERWRITE,
            added,
            replacement.removed,
            replacement.summary_properties | {snapshots.CHANGED_VALUES: str(changed_values)},
            tag_names(plan.run_id),
        )
        return _publication(plan, snapshot, appended, already=False)

    return with_retries(f"publish {plan.dataset} {plan.range}", attempt, table)


def _import_files(tables: LoadedTables, suffix: str, files: Sequence[StagedFile]) -> list[DataFile]:
    """Return manifest entries of checked files, after a copy into the table's object store if it has one."""
    table = tables.by_suffix[suffix]
    return to_data_files(table, files, copy_staged_files(table, tables.plan.run_id, files))


def _require_whole_days(plan: Plan) -> None:
    require_aligned(plan.since_ms, "since", DAY_MS, 0, "the table's days in UTC")
    require_aligned(plan.until_ms, "until", DAY_MS, 0, "the table's days in UTC")


def _find_appends(catalog: Catalog, plan: Plan) -> dict[str, Snapshot]:
    """Return the snapshots in which an earlier attempt of the run appended to its side tables, by suffix."""
    sides = {suffix: load_table(catalog, side.name) for suffix, side in plan.tables.items() if suffix != WINDOWS}
    found = {suffix: snapshots.find_append_of_run(side, plan.run_id) for suffix, side in sides.items()}
    return {suffix: snapshot for suffix, snapshot in found.items() if snapshot}


def _publication(
    plan: Plan, windows_snapshot: Snapshot, appended: Mapping[str, Snapshot], *, already: bool
) -> Publication:
    by_suffix = {WINDOWS: windows_snapshot, **appended}
    return Publication(
        run_id=plan.run_id,
        dataset=plan.dataset,
        since_ms=plan.since_ms,
        until_ms=plan.until_ms,
        snapshots={suffix: snapshot.snapshot_id for suffix, snapshot in by_suffix.items()},
        rows=snapshots.summary_number(windows_snapshot, snapshots.ROWS),
        replaced_rows=snapshots.summary_number(windows_snapshot, snapshots.REPLACED_ROWS),
        files=snapshots.summary_number(windows_snapshot, snapshots.FILES),
        published_at=instant_text(windows_snapshot.timestamp_ms),
        already=already,
    )


def _count_rows(files: Sequence[DataFile]) -> int:
    return sum(file.record_count for file in files)
