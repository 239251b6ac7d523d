"""Choose the tables that a run writes, and compare them with the lake. Nothing is created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from backstream.definition.columns import key_columns, value_columns
from backstream.definition.model import Definition
from backstream.lake.catalog import open_catalog_for_reading, open_catalog_for_writing
from backstream.lake.catalog_history import load_history
from backstream.lake.publication.ownership import TableOwner, list_former_tables, require_ownable
from backstream.lake.publication.planned_tables import create_missing_tables, plan_element_ids, plan_tables
from backstream.lake.publication.range_copies import plan_target
from backstream.lake.publication.target_table import TargetTable
from backstream.lake.storage import Warehouse
from backstream.runs.plan import Mode, PlannedTable, definition_id
from backstream.runs.table_schemas import (
    METRICS_TABLE,
    QUARANTINE_TABLE,
    WINDOWS,
    WITHHELD_TABLE,
    Table,
    dropped_table,
    firings_table,
    panes_table,
    process_rows_table,
    side_outputs_table,
    skipped_windows_table,
    windows_table,
)
from backstream.text import text_logger
from backstream.workflow.plan.plan_request import RunScope

log = text_logger(__name__)
_RENAMED = (
    "notice: %s now writes to the new table `%s`. Its previous table `%s` is kept and no longer updated\n"
    "  `%s` starts empty: it contains only the days that are run from now on"
)


class RunTables(NamedTuple):
    """The tables that a run writes, their states (see `Plan`), and the field ids of list elements, by suffix."""

    planned: dict[str, PlannedTable]
    base_snapshots: dict[str, int | None]
    base_files: dict[str, str]
    element_ids: dict[str, dict[str, int]]


def plan_run_tables(scope: RunScope, owner: TableOwner, types: Mapping[str, str]) -> RunTables:
    """Return the tables that the run writes; missing ones are created only if their catalog chooses the locations.

    Raises:
        PlanError: when a table does not fit or belongs to another definition.
    """
    name = scope.definition.name
    chooses = not Warehouse.from_home(scope.home).is_given
    with (open_catalog_for_writing if chooses else open_catalog_for_reading)(scope.home) as catalog:
        require_ownable(catalog, owner)
        for former in list_former_tables(catalog, owner):
            log.warning(_RENAMED, scope.place, name, former, name)
        wanted = _list_tables(scope.definition, types, scope.mode)
        if chooses:
            create_missing_tables(catalog, owner, wanted, scope.definition.model_dump(), scope.definition.row_key)
        interval = None if load_history(scope.home).snapshots else scope.interval
        planned, bases, digest = plan_tables(catalog, name, wanted, interval)
        files = {WINDOWS: digest}
        if section := scope.definition.publish:
            target, writer = TargetTable(**section.model_dump()), definition_id(owner.definition)
            base = plan_target(catalog, target, wanted[0].columns, writer, interval)
            bases[target.table], files[target.table] = base
        return RunTables(planned, bases, files if interval else {}, plan_element_ids(catalog, name, wanted))


def _list_tables(definition: Definition, types: Mapping[str, str], mode: Mode) -> list[Table]:
    keys, values = key_columns(definition, types), value_columns(definition, types)
    if definition.process:
        rows = [process_rows_table(keys, values), side_outputs_table(keys), skipped_windows_table(keys)]
        return [*rows, METRICS_TABLE, QUARANTINE_TABLE]
    tables = [windows_table(keys, values), METRICS_TABLE, QUARANTINE_TABLE]
    tables += [WITHHELD_TABLE] if definition.withholds_rows else []
    tables += [skipped_windows_table(keys)] if definition.job else []
    if mode is Mode.REPLAY:
        of_panes = [column for column in values if column.name in definition.pane_names]
        tables += [panes_table(keys, of_panes), dropped_table(keys)]
        tables += [firings_table(keys, of_panes)] if definition.backfill.keep_firings else []
    return tables
