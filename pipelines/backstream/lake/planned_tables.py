"""The tables of a plan: their columns and field ids before anything is written, and the tables made just so.

A plan changes nothing in the lake. It says which field ids the columns of its tables have, or will have: those of
a table that is there, with the next ones for columns that it lacks; else those of a new table. The first task that
writes makes the tables, and checks that they are as the plan says: staged files hold these ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from backstream.errors import ContractError, PlanError
from backstream.lake.catalog import NAMESPACE, load_table
from backstream.lake.commit import with_retries
from backstream.lake.ownership import TableOwner, record_owner
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
    require_compatible,
    type_text,
)
from backstream.runs.plan import Plan, PlannedTable
from backstream.runs.table_schemas import WINDOWS, Column, Table

_Fields = Mapping[str, tuple[str, int]]
"""Columns by name: type and field id."""


def plan_tables(
    catalog: Catalog, dataset: str, tables: Sequence[Table]
) -> tuple[dict[str, PlannedTable], dict[str, int | None]]:
    """Return, per suffix, each table as a job must write it, and its snapshot now (None: nothing published yet).

    Raises:
        PlanError: when a table exists and its columns do not fit, or the dataset's name is taken.
    """
    if dataset in RESERVED:
        msg = f"a dataset cannot be called `{dataset}`: that is a table all datasets share"
        raise PlanError(msg)
    found = {table.suffix: find_table(catalog, table.name(dataset)) for table in tables}
    planned = {wanted.suffix: _planned(catalog, dataset, wanted, found[wanted.suffix]) for wanted in tables}
    bases = {suffix: table.metadata.current_snapshot_id if table else None for suffix, table in found.items()}
    return planned, bases


def create_tables(catalog: Catalog, plan: Plan) -> dict[str, IcebergTable]:
    """Make the tables of a plan, or add the columns they lack, and return them by suffix; again does nothing.

    The table of the windows comes first, and notes whose it is: who may not write it makes no table at all.

    Raises:
        PlanError: when another definition writes the dataset, or its published rows have other keys.
        ContractError: when a table is not, and cannot become, what the plan says.
        LedgerError: when a table from which something was published is gone.
    """
    windows_first = sorted(plan.tables, key=lambda suffix: suffix != WINDOWS)
    return {suffix: _made(catalog, plan, suffix) for suffix in windows_first}


def require_planned_schema(table: IcebergTable, planned: PlannedTable) -> None:
    """Check that a table is still where, and with the columns, that the plan told the job to write.

    Raises:
        ContractError: naming what differs.
    """
    _require_promised(table, planned, _fields(table))


def _planned(catalog: Catalog, dataset: str, wanted: Table, table: IcebergTable | None) -> PlannedTable:
    name = wanted.name(dataset)
    for column in wanted.columns:
        iceberg_type(column.type)
    if table:
        require_compatible(table, name, wanted)
    fields = _fields_once_made(table, wanted.columns)
    columns = tuple((each.name, each.type, fields[each.name][1], each.required) for each in wanted.columns)
    location = table.location() if table else _new_location(catalog, name)
    return PlannedTable(name, plain_path(location), columns, wanted.day_column)


def _new_location(catalog: Catalog, name: str) -> str:
    """Where a table that is yet to be made will be."""
    return f"{catalog.properties['warehouse'].rstrip('/')}/{NAMESPACE}/{name}"


def _made(catalog: Catalog, plan: Plan, suffix: str) -> IcebergTable:
    planned = plan.tables[suffix]
    claim = TableOwner.from_plan(plan) if suffix == WINDOWS else None
    columns = [Column(name, kind, required) for name, kind, _, required in planned.columns]
    wanted = Table(suffix, tuple(columns), planned.day_column)

    def attempt() -> IcebergTable:
        table = _table_for(catalog, plan, wanted, claim)
        _require_promised(table, planned, _fields_once_made(table, columns))
        if claim:
            record_owner(table, claim)
        add_columns(table, columns)
        require_planned_schema(table, planned)
        return table

    return with_retries(f"prepare table `{planned.name}`", attempt)


def _table_for(catalog: Catalog, plan: Plan, wanted: Table, claim: TableOwner | None) -> IcebergTable:
    """The table that is there, or a new one: where something was published, it must be there."""
    planned = plan.tables[wanted.suffix]
    if plan.base_snapshots.get(wanted.suffix) is not None:
        return load_table(catalog, planned.name)
    if table := find_table(catalog, planned.name):
        return table
    location = location_of(planned.location)
    _require_new(catalog, plan, wanted)
    return create_table(catalog, planned.name, wanted, location, claim.properties if claim else None)


def _require_new(catalog: Catalog, plan: Plan, wanted: Table) -> None:
    """Check that a table which is not there is yet to be made: another had other field ids or places."""
    planned = plan.tables[wanted.suffix]
    if _planned(catalog, plan.dataset, wanted, None) != planned:
        msg = (
            f"table `{planned.name}` is gone: it was there when this run was planned\n"
            f"  planned at {planned.location}\n\nhint: plan the range again"
        )
        raise ContractError(msg)


def _fields(table: IcebergTable) -> dict[str, tuple[str, int]]:
    return {field.name: (type_text(field.field_type), field.field_id) for field in table.schema().fields}


def _fields_once_made(table: IcebergTable | None, columns: Sequence[Column]) -> dict[str, tuple[str, int]]:
    """The columns of a table once it has all that are wanted: Iceberg numbers them in their order."""
    added, last_id = (
        (find_missing_columns(table, columns), table.metadata.last_column_id) if table else (columns, 0)
    )
    new = {each.name: (type_text(each.type), field_id) for field_id, each in enumerate(added, last_id + 1)}
    return (_fields(table) if table else {}) | new


def _require_promised(table: IcebergTable, planned: PlannedTable, fields: _Fields) -> None:
    """Check a table whose columns are, or will be, the given ones."""
    found = _fields(table)
    facts = [
        f"{name}: planned as {kind}, field {field_id}, found {_found_text(found, name, field_id)}"
        for name, kind, field_id, _ in planned.columns
        if fields.get(name) != (type_text(kind), field_id)
    ]
    known = {name for name, *_ in planned.columns}
    facts += [
        f"{field.name}: not planned, found required {type_text(field.field_type)}"
        for field in table.schema().fields
        if field.required and field.name not in known
    ]
    if (location := plain_path(table.location())) != planned.location:
        facts.insert(0, f"planned at {planned.location}, found at {location}")
    if (is_by := describe_partitioning(table)) != (wanted := describe_wanted_partitioning(planned.day_column)):
        facts.append(f"planned to be partitioned by {wanted}, found {is_by}")
    if facts:
        listed = "".join(f"\n  {fact}" for fact in facts)
        what = f"table `{planned.name}` is not the one this run was planned for: it was made or changed since"
        msg = f"{what}{listed}\n\nhint: plan the range again"
        raise ContractError(msg)


def _found_text(found: _Fields, name: str, field_id: int) -> str:
    if name in found:
        return f"{found[name][0]}, field {found[name][1]}"
    taken = next((other for other, (_, other_id) in found.items() if other_id == field_id), None)
    return f"no such column, and field {field_id} is {taken}" if taken else "no such column"
