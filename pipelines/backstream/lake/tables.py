"""The lake's tables in Iceberg's terms: made when missing, with columns added where they lack some."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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
from backstream.errors import PlanError
from backstream.lake.catalog import FORMAT, FORMAT_VERSION, MADE_BY, NAMESPACE, require_known_format
from backstream.lake.commit import with_retries
from backstream.runs.table_schemas import Column, Table

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


def create_or_evolve_table(catalog: Catalog, name: str, wanted: Table) -> IcebergTable:
    """The table under a name, made when missing, with columns added that it lacks.

    Raises:
        PlanError: when its columns cannot be made to fit, or a newer version made it.
    """
    return with_retries(f"prepare table `{name}`", lambda: _ensured(catalog, name, wanted))


def type_text(kind: object) -> str:
    """An Iceberg type as `core.tables` spells it."""
    return str(kind).replace(" ", "")


def find_table(catalog: Catalog, name: str) -> IcebergTable | None:
    """The table under a name; None where there is none.

    Raises:
        PlanError: when a newer version made it.
    """
    try:
        return require_known_format(catalog.load_table((NAMESPACE, name)))
    except NoSuchTableError:
        return None


def create_table(
    catalog: Catalog, name: str, wanted: Table, location: str | None = None, said: Mapping[str, str] | None = None
) -> IcebergTable:
    """Make a table; where another process was quicker, return that one's.

    Args:
        catalog: of the lake.
        name: of the table.
        wanted: its columns, and the day it is partitioned by.
        location: where its files lie; None: where the catalog puts it.
        said: properties beside those that every table has.
    """
    identifier, schema = (NAMESPACE, name), _schema(wanted)
    try:
        return catalog.create_table(
            identifier,
            schema,
            location=location,
            partition_spec=_partition_spec(wanted, schema),
            properties=_properties(wanted) | dict(said or {}),
        )
    except TableAlreadyExistsError:
        return require_known_format(catalog.load_table(identifier))


def require_compatible(table: IcebergTable, name: str, wanted: Table) -> None:
    """Check that a table can hold rows of the wanted columns, once it has those that it lacks.

    Raises:
        PlanError: naming what does not fit.
    """
    if misfits := _misfits(table, wanted):
        msg = (
            f"table `{name}` does not fit the definition any more"
            + "".join(f"\n  {misfit}" for misfit in misfits)
            + "\n\nhint: a column keeps its type; give the aggregate or the dataset another name"
        )
        raise PlanError(msg)


def add_columns(table: IcebergTable, wanted: Sequence[Column]) -> None:
    """Add the columns that a table lacks, as optional even where rows must have a value: published rows have none.

    Raises:
        CommitFailedException: when somebody else changed its columns meanwhile.
    """
    if added := find_missing_columns(table, wanted):
        with table.update_schema() as update:
            for column in added:
                update.add_column(column.name, iceberg_type(column.type))


def find_missing_columns(table: IcebergTable, wanted: Sequence[Column]) -> list[Column]:
    """The columns that a table does not have, in their order."""
    there = set(table.schema().column_names)
    return [column for column in wanted if column.name not in there]


def describe_partitioning(table: IcebergTable) -> str:
    """What a table is partitioned by, in words."""
    schema = table.schema()
    terms = [f"{field.transform}({schema.find_column_name(field.source_id)})" for field in table.spec().fields]
    return ", ".join(terms) or "nothing"


def describe_wanted_partitioning(day_column: str | None) -> str:
    """What a table should be partitioned by, in the same words."""
    return f"day({day_column})" if day_column else "nothing"


def iceberg_type(text: str) -> PrimitiveType:
    """A type of `core.tables` as Iceberg's.

    Raises:
        PlanError: when it is none.
    """
    if decimal := _DECIMAL.fullmatch(text):
        return DecimalType(int(decimal[1]), int(decimal[2]))
    if text not in _TYPES:
        msg = f"column type must be one of {', '.join(_TYPES)} or decimal(p,s), got {text!r}"
        raise PlanError(msg)
    return _TYPES[text]


def _ensured(catalog: Catalog, name: str, wanted: Table) -> IcebergTable:
    table = find_table(catalog, name) or create_table(catalog, name, wanted)
    require_compatible(table, name, wanted)
    add_columns(table, wanted.columns)
    return table


def _properties(wanted: Table) -> dict[str, str]:
    """A table of windows notes of each file which run made it, in full: nobody has to read the file to know."""
    return _PROPERTIES | ({_RUN_BOUNDS: "full"} if wanted.day_column else {})


def _misfits(table: IcebergTable, wanted: Table) -> list[str]:
    columns = {column.name: column for column in wanted.columns}
    found = [_misfit(field, columns.get(field.name)) for field in table.schema().fields]
    if (is_by := describe_partitioning(table)) != (day := describe_wanted_partitioning(wanted.day_column)):
        found.append(f"partitioned by: expected {day}, found {is_by}")
    return [misfit for misfit in found if misfit]


def _misfit(field: NestedField, column: Column | None) -> str | None:
    """A column only the table has may stay, and is null in new rows, unless it is required."""
    found = type_text(field.field_type)
    if column is None:
        return f"{field.name}: expected no such column, found required {found}" if field.required else None
    if type_text(iceberg_type(column.type)) != found:
        return f"{field.name}: expected {column.type}, found {found}"
    if field.required and not column.required:
        return f"{field.name}: expected {found}, found required {found}"
    return None


def _schema(wanted: Table) -> Schema:
    return Schema(
        *(
            NestedField(field_id, column.name, iceberg_type(column.type), required=column.required)
            for field_id, column in enumerate(wanted.columns, start=1)
        )
    )


def _partition_spec(wanted: Table, schema: Schema) -> PartitionSpec:
    if wanted.day_column is None:
        return PartitionSpec()
    source_id = schema.find_field(wanted.day_column).field_id
    name = f"{wanted.day_column}_day"
    return PartitionSpec(PartitionField(source_id, _FIRST_PARTITION_FIELD, DayTransform(), name))
