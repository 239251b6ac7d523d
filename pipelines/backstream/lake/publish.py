"""Publish: side tables first, then the one commit that says what is now true of a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from backstream.errors import ConflictError
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import require_aligned
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.commit import commit_snapshot, retry_attempts, to_data_files, with_retries
from backstream.lake.diff import Replacement, append_restatements
from backstream.lake.file_copies import upload_staged_files
from backstream.lake.maintenance import touch_staged_files
from backstream.lake.ownership import TableOwner, record_owner
from backstream.lake.planned_tables import create_tables, require_planned_schema
from backstream.lake.published_runs import find_rollback_of, load_publication
from backstream.lake.scans import list_files
from backstream.lake.snapshots import ensure_tag, tag_name
from backstream.lake.staged_files import check_staged_files, require_complete_staging
from backstream.lake.tables import find_table
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Plan
from backstream.runs.results import Publication
from backstream.runs.table_schemas import WINDOWS

Staged = Mapping[str, Sequence[StagedFile]]


def publish_range(plan: Plan, manifests: Sequence[Manifest], home: Home | None = None) -> Publication:
    """Replace exactly the plan's range by what its chunks staged; doing it again changes nothing.

    Raises:
        PlanError: when the range does not consist of whole UTC days, a newer version made a table, or another
            definition writes the dataset.
        LedgerError: when a chunk left no manifest, or a table or the catalog is not there.
        ContractError: when a staged file, a chunk's count of fates or a table is not what was promised.
        ConflictError: when another run published into the range since this one was planned, or this one was
            rolled back.
    """
    _require_whole_days(plan)
    home = home or Home(Path(plan.home))
    with open_catalog_for_writing(home) as catalog:
        found = find_table(catalog, plan.tables[WINDOWS].name)
        if found and (done := _done_before(catalog, found, plan, home)):
            return done
        require_complete_staging(plan, manifests)
        touch_staged_files(manifests)
        staged = {suffix: check_staged_files(plan, suffix, manifests) for suffix in plan.tables}
        table = create_tables(catalog, plan)[WINDOWS]
        # Once before anything is written, so that a run which lost leaves nothing; again at each attempt.
        snapshots.require_no_conflict(table, plan)
        with retry_attempts(f"publish {plan.dataset} {plan.range}"):
            added = _data_files(table, plan, WINDOWS, staged[WINDOWS])
        append_side_tables(catalog, plan, staged)
        append_restatements(catalog, plan.dataset, plan_replacement(table, plan, added))
        return _windows_replaced(catalog, plan, added)


def preview_replacement(catalog: Catalog, plan: Plan, manifests: Sequence[Manifest]) -> Replacement:
    """What a run would replace if it were published now; nothing is written.

    Raises:
        LedgerError: when a chunk left no manifest, or the table is not there.
        ContractError: when a staged file is not what it promised.
    """
    require_complete_staging(plan, manifests)
    table = load_table(catalog, plan.tables[WINDOWS].name)
    require_planned_schema(table, plan.tables[WINDOWS])
    staged = to_data_files(table, check_staged_files(plan, WINDOWS, manifests))
    return plan_replacement(table, plan, staged)


def plan_replacement(table: Table, plan: Plan, added: Sequence[DataFile]) -> Replacement:
    """What the files of a plan's windows replace in the table as it was loaded."""
    removed = list_files(table, plan.range)
    said = snapshots.summary_properties(plan, _records(added), _records(removed), len(added))
    return Replacement(table, removed, added, snapshots.key_columns_of_plan(plan), said)


def _done_before(catalog: Catalog, table: Table, plan: Plan, home: Home) -> Publication | None:
    """What an earlier attempt of the run did, from its snapshot; from the ledger where that was expired."""
    if undo_id := find_rollback_of(home, table, plan.run_id):
        raise _undone(plan, undo_id)
    if done := snapshots.find_snapshot_of_run(table, plan.run_id):
        ensure_tag(catalog, plan.tables[WINDOWS].name, plan.run_id, done.snapshot_id)
        return _publication(catalog, plan, done, already=True)
    return load_publication(plan, home) if snapshots.is_history_expired(table) else None


def _undone(plan: Plan, undo_id: str) -> ConflictError:
    return ConflictError(
        f"refusing to publish {plan.dataset} {plan.range}: this run was published, and then rolled back\n"
        f"  {plan.run_id} was undone by {undo_id}\n\n"
        f"hint: plan the range again; or bring back what was undone: backstream rollback {undo_id}"
    )


def append_side_tables(catalog: Catalog, plan: Plan, staged: Staged) -> None:
    """Append what was staged for each table but the windows, once per run.

    Readers take the rows of published runs only, so that a run which ends here leaves nothing visible.
    """
    for suffix in plan.tables:
        if suffix != WINDOWS and staged[suffix]:
            _appended(catalog, plan, suffix, staged[suffix])


def _appended(catalog: Catalog, plan: Plan, suffix: str, files: Sequence[StagedFile]) -> None:
    name, run_id = plan.tables[suffix].name, plan.run_id
    if snapshots.find_append_of_run(table := load_table(catalog, name), run_id) is not None:
        return
    with retry_attempts(f"append to table `{name}`"):
        added = _data_files(table, plan, suffix, files)
    said = snapshots.summary_properties(plan, _rows(files), 0, len(files))

    def attempt() -> None:
        table = load_table(catalog, name)
        if snapshots.find_append_of_run(table, run_id) is None:
            commit_snapshot(table, Operation.APPEND, added, [], said)

    with_retries(f"append to table `{name}`", attempt)


def _windows_replaced(catalog: Catalog, plan: Plan, added: Sequence[DataFile]) -> Publication:
    name, run_id = plan.tables[WINDOWS].name, plan.run_id

    def attempt() -> Publication:
        table = load_table(catalog, name)
        if done := snapshots.find_snapshot_of_run(table, run_id):
            return _publication(catalog, plan, done, already=True)
        snapshots.require_no_conflict(table, plan)
        record_owner(table, TableOwner.from_plan(plan))
        now = plan_replacement(table, plan, added)
        snapshot = commit_snapshot(
            table, Operation.OVERWRITE, added, now.removed, now.summary_properties, tag_name(run_id)
        )
        return _publication(catalog, plan, snapshot, already=False)

    return with_retries(f"publish {plan.dataset} {plan.range}", attempt)


def _data_files(table: Table, plan: Plan, suffix: str, files: Sequence[StagedFile]) -> list[DataFile]:
    """Checked files as the table describes them, brought to where the table is."""
    require_planned_schema(table, plan.tables[suffix])
    return to_data_files(table, files, upload_staged_files(table, plan.run_id, files))


def _require_whole_days(plan: Plan) -> None:
    require_aligned(plan.since_ms, "since", DAY_MS, 0, "the table's days in UTC")
    require_aligned(plan.until_ms, "until", DAY_MS, 0, "the table's days in UTC")


def _publication(catalog: Catalog, plan: Plan, main: Snapshot, *, already: bool) -> Publication:
    snapshot_ids, run_id = {WINDOWS: main.snapshot_id}, plan.run_id
    for suffix, table in plan.tables.items():
        if suffix != WINDOWS and (side := snapshots.find_append_of_run(load_table(catalog, table.name), run_id)):
            snapshot_ids[suffix] = side.snapshot_id
    return Publication(
        run_id=run_id,
        dataset=plan.dataset,
        since_ms=plan.since_ms,
        until_ms=plan.until_ms,
        snapshots=snapshot_ids,
        rows=snapshots.summary_number(main, snapshots.ROWS),
        replaced_rows=snapshots.summary_number(main, snapshots.REPLACED_ROWS),
        files=snapshots.summary_number(main, snapshots.FILES),
        published_at=instant_text(main.timestamp_ms),
        already=already,
    )


def _rows(files: Sequence[StagedFile]) -> int:
    return sum(file.rows for file in files)


def _records(files: Sequence[DataFile]) -> int:
    return sum(file.record_count for file in files)
