"""Plan the columns and field ids of a plan's tables, create the tables, and check them against the plan.

Planning changes nothing in the lake, except that a catalog that chooses the locations of tables gets empty ones,
because a plan records locations. A plan records the field ids that the columns of its tables have or will
have. An existing table keeps its ids, and columns that it lacks get the next ones. The first task that writes
creates the tables and checks their field ids, because staged files contain these ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import ListType

from backstream.errors import ContractError, PlanError
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import load_table, new_table_location
from backstream.lake.commit import with_retries
from backstream.lake.publication.ownership import TableOwner, record_owner, remember_definition
from backstream.lake.scans import DAY_COLUMN, digest_files
from backstream.lake.storage import location_of, plain_path
from backstream.lake.tables import (
    RESERVED,
    add_columns,
    create_table,
    describe_partitioning,
    describe_wanted_partitioning,
    find_missing_columns,
    find_table,
    iceberg_type,
    is_list,
    new_element_ids,
    require_compatible,
    type_text,
)
from backstream.runs.plan import Plan, PlannedTable
from backstream.runs.table_schemas import RECORD_COUNT, WINDOWS, Column, Table

_COMMENTS = {
    "window_start": "start of the window, inclusive",
    "window_end": "end of the window, exclusive",
    RECORD_COUNT: "number of records behind the row",
    "run_id": "run that wrote the row",
    "source_partition": "source partition of the record",
    "event_time": "time at which the event happened",
    "arrival_time": "time at which the record arrived",
    "arrival_seq": "position of the record among those of the same arrival time",
    "events": "records in the window: on time, late, dropped, and expired",
    "on_time": "records that arrived before the watermark passed the window",
    "late": "records that arrived later, within the allowed lateness",
    "dropped": "records that arrived after the allowed lateness",
    "expired": "records that this window no longer accepted, but a later one did",
    "first_arrival": "earliest arrival time of the records",
    "last_arrival": "latest arrival time of the records",
    "fired_at": "time of the source's clock at the firing of the window",
}


def _column_comments(definition: Mapping[str, Any]) -> dict[str, str]:
    """Return a comment per column: the meaning of fixed columns, and the expression of those of the definition."""
    keys = dict.fromkeys(definition.get("source", {}).get("key", ()), "key")
    computed = {**definition.get("aggregates", {}), **definition.get("derive_after", {})}
    top = definition.get("top") or {}
    rank = {top["rank"]: f"rank by {top['by']}"} if top.get("rank") else {}
    zone, local = definition.get("window", {}).get("time_zone"), ("window_start", "window_end", "event_time")
    times = {name: f"{_COMMENTS[name]}; local time of {zone}, as if it were UTC" for name in local} if zone else {}
    texts = {name: str(expression) for name, expression in computed.items()}
    return {**_COMMENTS, **times, **keys, **texts, **rank}


_DESCRIPTION = "comment"
"""Table property that Spark and other readers show as the description of a table."""

_Fields = Mapping[str, tuple[str, int]]
"""Type and field id by column name."""


class PlannedTables(NamedTuple):
    """The tables that a job must write, and their current snapshots (None: nothing published), by suffix.

    `files` is the digest of the files of the windows in the range; empty unless the catalog keeps no history.
    """

    tables: dict[str, PlannedTable]
    snapshots: dict[str, int | None]
    files: str


def plan_tables(
    catalog: Catalog, dataset: str, tables: Sequence[Table], interval: Interval | None = None
) -> PlannedTables:
    """Return the tables that a job must write; an interval asks for the digest of its files.

    Raises:
        PlanError: if the columns of an existing table don't fit, or the dataset's name is reserved.
    """
    if dataset in RESERVED:
        msg = f"a dataset cannot have the name `{dataset}`: all datasets share a table of this name"
        raise PlanError(msg)
    existing = {wanted.suffix: find_table(catalog, wanted.name(dataset)) for wanted in tables}
    planned = {wanted.suffix: _plan_table(catalog, dataset, wanted, existing[wanted.suffix]) for wanted in tables}
    bases = {suffix: table.metadata.current_snapshot_id if table else None for suffix, table in existing.items()}
    windows = existing.get(WINDOWS)
    return PlannedTables(planned, bases, digest_files(windows, interval) if interval else "")


def plan_element_ids(catalog: Catalog, dataset: str, tables: Sequence[Table]) -> dict[str, dict[str, int]]:
    """Return the field ids of list elements by suffix and column; tables without lists are left out."""
    with_lists = [wanted for wanted in tables if any(map(is_list, wanted.columns))]
    return {
        wanted.suffix: _element_ids(find_table(catalog, wanted.name(dataset)), wanted) for wanted in with_lists
    }


def _element_ids(table: IcebergTable | None, wanted: Table) -> dict[str, int]:
    if table is None:
        return new_element_ids(wanted.columns)
    fields, ids = _future_fields(table, wanted.columns), dict[str, int]()
    existing = {field.name: field.field_type for field in table.schema().fields}
    for column in filter(is_list, wanted.columns):
        kind = existing.get(column.name)
        ids[column.name] = kind.element_id if isinstance(kind, ListType) else fields[column.name][1] + 1
    return ids


@dataclass(frozen=True, slots=True)
class LoadedTables:
    """The loaded tables of a run by suffix; a commit changes a table in place."""

    catalog: Catalog
    plan: Plan
    by_suffix: Mapping[str, IcebergTable]

    @property
    def windows(self) -> IcebergTable:
        """The table of windows, whose commit publishes the run."""
        return self.by_suffix[WINDOWS]


def create_tables(catalog: Catalog, plan: Plan) -> LoadedTables:
    """Create the tables of a plan or add columns, and return them; a second call changes nothing.

    The table of windows comes first and records its owner, so that a refused definition creates no other table.

    Raises:
        PlanError: if another definition writes the dataset, or its published rows have other keys.
        ContractError: if a table does not match the plan, and columns cannot be added to match it.
        LedgerError: if a table with published rows is missing.
    """
    windows_first = sorted(plan.tables, key=lambda suffix: suffix != WINDOWS)
    return LoadedTables(catalog, plan, {suffix: _create_one(catalog, plan, suffix) for suffix in windows_first})


def require_planned_schema(table: IcebergTable, planned: PlannedTable) -> None:
    """Check that a table still has the planned location and columns.

    Raises:
        ContractError: with the differences.
    """
    _require_planned(table, planned, _fields(table))


def _plan_table(catalog: Catalog, dataset: str, wanted: Table, table: IcebergTable | None) -> PlannedTable:
    name = wanted.name(dataset)
    for column in wanted.columns:
        iceberg_type(column.type)
    if table:
        require_compatible(table, name, wanted)
    fields = _future_fields(table, wanted.columns)
    columns = tuple(
        (column.name, column.type, fields[column.name][1], column.required) for column in wanted.columns
    )
    location = table.location() if table else new_table_location(catalog, name) or ""
    return PlannedTable(name, plain_path(location), columns, wanted.day_column)


def _create_one(catalog: Catalog, plan: Plan, suffix: str) -> IcebergTable:
    planned = plan.tables[suffix]
    owner = TableOwner.from_plan(plan) if suffix == WINDOWS else None
    columns = [Column(name, type_name, required) for name, type_name, _, required in planned.columns]
    wanted = _add_comments(Table(suffix, tuple(columns), planned.day_column), plan.definition)
    columns = list(wanted.columns)
    if owner:
        remember_definition(owner)  # before the table names it

    def attempt() -> IcebergTable:
        table = _find_or_create(catalog, plan, wanted, owner)
        _require_planned(table, planned, _future_fields(table, columns))
        if owner:
            record_owner(table, owner)
        add_columns(table, columns)
        require_planned_schema(table, planned)
        return table

    return with_retries(f"prepare table `{planned.name}`", attempt)


def _find_or_create(catalog: Catalog, plan: Plan, wanted: Table, owner: TableOwner | None) -> IcebergTable:
    """Return the existing table or a new one; a table with published rows must exist."""
    planned = plan.tables[wanted.suffix]
    if plan.base_snapshots.get(wanted.suffix) is not None:
        return load_table(catalog, planned.name)
    if table := find_table(catalog, planned.name):
        return table
    _require_new(catalog, plan, wanted)
    return _create(
        catalog, planned.name, wanted, location_of(planned.location), owner, plan.definition, plan.row_key
    )


def _create(
    catalog: Catalog,
    name: str,
    wanted: Table,
    location: str | None,
    owner: TableOwner | None,
    definition: Mapping[str, Any],
    row_key: Sequence[str],
) -> IcebergTable:
    """Create a table; that of windows gets its owner, its order, and its description."""
    if owner is None:
        return create_table(catalog, name, wanted, location)
    properties, names = owner.properties, [column.name for column in wanted.columns]
    order = [name for name in (DAY_COLUMN, *row_key) if name in names]
    if description := definition.get("description"):
        properties |= {_DESCRIPTION: description}
    return create_table(catalog, name, wanted, location, properties, order)


def _add_comments(wanted: Table, definition: Mapping[str, Any]) -> Table:
    comments = _column_comments(definition)
    columns = (replace(column, comment=comments.get(column.name, "")) for column in wanted.columns)
    return replace(wanted, columns=tuple(columns))


def create_missing_tables(
    catalog: Catalog,
    owner: TableOwner,
    tables: Sequence[Table],
    definition: Mapping[str, Any],
    row_key: Sequence[str],
) -> None:
    """Create the tables that a dataset lacks in a catalog that chooses their locations, which a plan must know."""
    remember_definition(owner)  # before a table names it
    for wanted in sorted(tables, key=lambda each: each.suffix != WINDOWS):
        name, own = wanted.name(owner.dataset), owner if wanted.suffix == WINDOWS else None

        def attempt(wanted: Table = wanted, name: str = name, own: TableOwner | None = own) -> IcebergTable:
            commented = _add_comments(wanted, definition)
            return find_table(catalog, name) or _create(catalog, name, commented, None, own, definition, row_key)

        with_retries(f"create table `{name}`", attempt)


def _require_new(catalog: Catalog, plan: Plan, wanted: Table) -> None:
    """Check that a missing table was missing at planning time: a deleted one has other ids or another location."""
    planned = plan.tables[wanted.suffix]
    if _plan_table(catalog, plan.dataset, wanted, None) != planned:
        msg = (
            f"table `{planned.name}` is missing: it existed when this run was planned\n"
            f"  planned at {planned.location}\n\nhint: plan the range again"
        )
        raise ContractError(msg)


def _fields(table: IcebergTable) -> dict[str, tuple[str, int]]:
    return {field.name: (type_text(field.field_type), field.field_id) for field in table.schema().fields}


def _future_fields(table: IcebergTable | None, columns: Sequence[Column]) -> dict[str, tuple[str, int]]:
    """Return the columns of a table after missing ones are added; Iceberg numbers them in their order."""
    added, last_id = (
        (find_missing_columns(table, columns), table.metadata.last_column_id) if table else (columns, 0)
    )
    new_fields: dict[str, tuple[str, int]] = {}
    for column in added:
        last_id += 1
        new_fields[column.name] = (type_text(column.type), last_id)
        # An added column has the id before that of its elements; in a new table, elements come after all columns.
        last_id += 1 if table and is_list(column) else 0
    return (_fields(table) if table else {}) | new_fields


def _require_planned(table: IcebergTable, planned: PlannedTable, fields: _Fields) -> None:
    """Check a table with the given fields, or with these fields once they are added, against the plan."""
    actual = _fields(table)
    facts = [
        f"{name}: planned as {type_name}, field {field_id}, found {_actual_text(actual, name, field_id)}"
        for name, type_name, field_id, _ in planned.columns
        if fields.get(name) != (type_text(type_name), field_id)
    ]
    planned_names = {name for name, *_ in planned.columns}
    facts += [
        f"{field.name}: not planned, found required {type_text(field.field_type)}"
        for field in table.schema().fields
        if field.required and field.name not in planned_names
    ]
    if (location := plain_path(table.location())) != planned.location:
        facts.insert(0, f"planned at {planned.location}, found at {location}")
    if (partitioning := describe_partitioning(table)) != (
        wanted := describe_wanted_partitioning(planned.day_column)
    ):
        facts.append(f"planned to be partitioned by {wanted}, found {partitioning}")
    if facts:
        lines = "".join(f"\n  {fact}" for fact in facts)
        problem = f"table `{planned.name}` was created or changed after this run was planned"
        msg = f"{problem}{lines}\n\nhint: plan the range again"
        raise ContractError(msg)


def _actual_text(actual: _Fields, name: str, field_id: int) -> str:
    if name in actual:
        return f"{actual[name][0]}, field {actual[name][1]}"
    other_name = next((column for column, (_, column_id) in actual.items() if column_id == field_id), None)
    return f"no such column, and field {field_id} is {other_name}" if other_name else "no such column"
