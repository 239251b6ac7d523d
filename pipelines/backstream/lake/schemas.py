"""The lake's tables as a plan needs them: made when missing, grown when the definition grew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from backstream import __version__
from backstream.core.errors import ContractError, PlanError
from backstream.core.plan import PlannedTable
from backstream.core.tables import Column, Table
from backstream.lake.catalog import NAMESPACE
from backstream.lake.commits import with_retries
from backstream.lake.formats import FORMAT, FORMAT_VERSION, MADE_BY, known
from backstream.lake.warehouse import plain_path

RESERVED = ("arrivals", "checks", "runs")
"""Tables that all datasets share: no dataset may have such a name."""

_TYPES: dict[str, PrimitiveType] = {
    "string": StringType(),
    "long": LongType(),
    "int": IntegerType(),
    "double": DoubleType(),
    "float": FloatType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamptz": TimestamptzType(),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_FIRST_PARTITION_FIELD = 1000  # by the specification, ids of partition fields start here
_PROPERTIES = {
    FORMAT: str(FORMAT_VERSION),
    MADE_BY: __version__,
    "format-version": "2",
    # PyIceberg would commit again without asking whether the range was taken meanwhile: commits.py retries.
    "commit.retry.num-retries": "0",
    # Tables to which each run appends would have a manifest per run, and read all of them.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    # Each commit writes the whole metadata anew.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_RUN_BOUNDS = "write.metadata.metrics.column.run_id"
"""Table property: how much of the bounds of its run ids the entry of a file keeps; by default 16 letters."""


def prepared(
    catalog: Catalog, dataset: str, tables: Sequence[Table]
) -> tuple[dict[str, PlannedTable], dict[str, int | None]]:
    """Per suffix, each table as a job must write it, and its snapshot now (None: nothing published yet).

    Raises:
        PlanError: when a table exists and its columns do not fit, or the dataset's name is taken.
    """
    if dataset in RESERVED:
        msg = f"a dataset cannot be called `{dataset}`: that is a table all datasets share"
        raise PlanError(msg)
    found = {table.suffix: ensured(catalog, table.name(dataset), table) for table in tables}
    planned = {table.suffix: _planned(found[table.suffix], table.name(dataset), table) for table in tables}
    return planned, {suffix: table.metadata.current_snapshot_id for suffix, table in found.items()}


def ensured(catalog: Catalog, name: str, wanted: Table) -> IcebergTable:
    """The table under a name, made when missing, with columns added that it lacks.

    Raises:
        PlanError: when its columns cannot be made to fit, or a newer version made it.
    """
    return with_retries(f"prepare table `{name}`", lambda: _fitting(catalog, name, wanted))


def require_as_planned(table: IcebergTable, planned: PlannedTable) -> None:
    """Check that a table is still where, and with the columns, that the plan told the job to write.

    Raises:
        ContractError: naming what differs.
    """
    found = {field.name: (type_text(field.field_type), field.field_id) for field in table.schema().fields}
    facts = [
        f"{name}: planned as {kind}, field {field_id}, found {_found_text(found.get(name))}"
        for name, kind, field_id, _ in planned.columns
        if found.get(name) != (type_text(kind), field_id)
    ]
    if (location := plain_path(table.location())) != planned.location:
        facts.insert(0, f"planned at {planned.location}, found at {location}")
    if (partitioning := _partitioning(table)) != (wanted := _wanted_partitioning(planned.day_column)):
        facts.append(f"planned to be partitioned by {wanted}, found {partitioning}")
    if facts:
        listed = "".join(f"\n  {fact}" for fact in facts)
        msg = f"table `{planned.name}` is not the one this run was planned for{listed}"
        raise ContractError(msg + "\n\nhint: plan the range again")


def type_text(kind: object) -> str:
    """An Iceberg type as `core.tables` spells it."""
    return str(kind).replace(" ", "")


def _found_text(found: tuple[str, int] | None) -> str:
    return f"{found[0]}, field {found[1]}" if found else "no such column"


def _fitting(catalog: Catalog, name: str, wanted: Table) -> IcebergTable:
    table = _found_or_made(catalog, name, wanted)
    if misfits := _misfits(table, wanted):
        msg = (
            f"table `{name}` does not fit the definition any more"
            + "".join(f"\n  {misfit}" for misfit in misfits)
            + "\n\nhint: a column keeps its type; give the aggregate or the dataset another name"
        )
        raise PlanError(msg)
    if added := [column for column in wanted.columns if column.name not in table.schema().column_names]:
        _grow(table, added)
    return table


def _found_or_made(catalog: Catalog, name: str, wanted: Table) -> IcebergTable:
    identifier = (NAMESPACE, name)
    with suppress(NoSuchTableError):
        return known(catalog.load_table(identifier))
    schema = _schema(wanted)
    try:
        return catalog.create_table(
            identifier, schema, partition_spec=_partition_spec(wanted, schema), properties=_properties(wanted)
        )
    except TableAlreadyExistsError:  # another process was quicker
        return known(catalog.load_table(identifier))


def _properties(wanted: Table) -> dict[str, str]:
    """A table of windows notes of each file which run made it, in full: nobody has to read the file to know."""
    return _PROPERTIES | ({_RUN_BOUNDS: "full"} if wanted.day_column else {})


def _misfits(table: IcebergTable, wanted: Table) -> list[str]:
    columns = {column.name: column for column in wanted.columns}
    found = [_misfit(field, columns.get(field.name)) for field in table.schema().fields]
    if (partitioning := _partitioning(table)) != (day := _wanted_partitioning(wanted.day_column)):
        found.append(f"partitioned by: expected {day}, found {partitioning}")
    return [misfit for misfit in found if misfit]


def _misfit(field: NestedField, column: Column | None) -> str | None:
    """A column only the table has may stay, and is null in new rows, unless it is required."""
    found = type_text(field.field_type)
    if column is None:
        return f"{field.name}: expected no such column, found required {found}" if field.required else None
    if type_text(_type(column.type)) != found:
        return f"{field.name}: expected {column.type}, found {found}"
    if field.required and not column.required:
        return f"{field.name}: expected {found}, found required {found}"
    return None


def _grow(table: IcebergTable, added: Sequence[Column]) -> None:
    """Add columns, as optional even where new rows must have them: published rows lack them."""
    with table.update_schema() as update:
        for column in added:
            update.add_column(column.name, _type(column.type))


def _planned(table: IcebergTable, name: str, wanted: Table) -> PlannedTable:
    schema = table.schema()
    columns = tuple(
        (column.name, column.type, schema.find_field(column.name).field_id, column.required)
        for column in wanted.columns
    )
    return PlannedTable(name, plain_path(table.location()), columns, wanted.day_column)


def _schema(wanted: Table) -> Schema:
    return Schema(
        *(
            NestedField(field_id, column.name, _type(column.type), required=column.required)
            for field_id, column in enumerate(wanted.columns, start=1)
        )
    )


def _partition_spec(wanted: Table, schema: Schema) -> PartitionSpec:
    if wanted.day_column is None:
        return PartitionSpec()
    source_id = schema.find_field(wanted.day_column).field_id
    name = f"{wanted.day_column}_day"
    return PartitionSpec(PartitionField(source_id, _FIRST_PARTITION_FIELD, DayTransform(), name))


def _partitioning(table: IcebergTable) -> str:
    schema = table.schema()
    terms = [f"{field.transform}({schema.find_column_name(field.source_id)})" for field in table.spec().fields]
    return ", ".join(terms) or "nothing"


def _wanted_partitioning(day_column: str | None) -> str:
    return f"day({day_column})" if day_column else "nothing"


def _type(text: str) -> PrimitiveType:
    if decimal := _DECIMAL.fullmatch(text):
        return DecimalType(int(decimal[1]), int(decimal[2]))
    if text not in _TYPES:
        msg = f"column type must be one of {', '.join(_TYPES)} or decimal(p,s), got {text!r}"
        raise PlanError(msg)
    return _TYPES[text]
