"""Create the Iceberg tables of the lake, and add columns that they lack."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from backstream import __version__
from backstream.errors import PlanError
from backstream.lake.catalog import (
    FORMAT,
    FORMAT_VERSION,
    MADE_BY,
    explain_missing_location,
    new_table_location,
    require_known_format,
)
from backstream.lake.catalog_address import table_identifier
from backstream.lake.commit import with_retries
from backstream.runs.table_schemas import Column, Table

RESERVED = ("arrivals", "checks", "runs")
"""The names of tables that all datasets share; no dataset may have such a name."""

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
_LIST = re.compile(r"list<(.+)>")
_FIRST_PARTITION_FIELD = 1000  # the Iceberg specification starts the ids of partition fields here
_PROPERTIES = {
    FORMAT: str(FORMAT_VERSION),
    MADE_BY: __version__,
    "format-version": "2",
    # Without merges, an append-only table has one manifest per run, and each scan reads all of them.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    # Each commit writes a complete metadata file.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_RUN_ID_BOUNDS = "write.metadata.metrics.column.run_id"
"""Table property: the part of the run id that a manifest keeps as bounds; by default 16 characters."""


def create_or_evolve_table(catalog: Catalog, name: str, wanted: Table) -> IcebergTable:
    """Return a table, after creating it or adding the columns that it lacks.

    Raises:
        PlanError: if its columns don't fit, or a newer version created it.
    """
    return with_retries(f"prepare table `{name}`", lambda: _create_or_evolve(catalog, name, wanted))


def type_text(kind: object) -> str:
    """Return the text of an Iceberg type as `runs.table_schemas` spells it."""
    return str(kind).replace(" ", "")


def find_table(catalog: Catalog, name: str) -> IcebergTable | None:
    """Return a table by name; None if there is none.

    Raises:
        PlanError: if a newer version created it.
    """
    try:
        return require_known_format(catalog.load_table(table_identifier(name)))
    except NoSuchTableError:
        return None


def create_table(
    catalog: Catalog,
    name: str,
    wanted: Table,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    order: Sequence[str] = (),
) -> IcebergTable:
    """Create a table; if another process created it first, return that one.

    Args:
        catalog: the catalog of the lake.
        name: the name of the table.
        wanted: the columns and the day column of the partitioning.
        location: the location of its files; None: that of `new_table_location`, or of the catalog's choice.
        properties: properties in addition to those of every table.
        order: the columns of the sort order, for programs that rewrite files; the job doesn't sort its files.

    Raises:
        CommitFailedException: if another process created it in the meantime; the next attempt finds it.
    """
    identifier, schema = table_identifier(name), _schema(wanted)
    try:
        with explain_missing_location(catalog, name):
            table = catalog.create_table(
                identifier,
                schema,
                location=location or new_table_location(catalog, name),
                partition_spec=_partition_spec(wanted, schema),
                properties=_properties(wanted) | dict(properties or {}),
            )
    except TableAlreadyExistsError:
        return require_known_format(catalog.load_table(identifier))
    if order:
        # The order is added, so that order 0, unsorted, is listed: without it, Spark cannot sort files by another.
        with table.update_sort_order() as update:
            for column in order:
                update.asc(column, IdentityTransform(), NullOrder.NULLS_FIRST)
    return table


def require_compatible(table: IcebergTable, name: str, wanted: Table) -> None:
    """Check that a table can hold rows of the wanted columns, once the columns that it lacks are added.

    Raises:
        PlanError: with the columns that don't fit.
    """
    if misfits := _misfits(table, wanted):
        msg = (
            f"table `{name}` no longer fits the definition"
            + "".join(f"\n  {misfit}" for misfit in misfits)
            + "\n\nhint: a column keeps its type; give the aggregate or the dataset another name"
        )
        raise PlanError(msg)


def add_columns(table: IcebergTable, wanted: Sequence[Column]) -> None:
    """Add missing columns, always as optional, because published rows have no value for them.

    Raises:
        CommitFailedException: if another process changed the columns in the meantime.
    """
    if missing := find_missing_columns(table, wanted):
        with table.update_schema() as update:
            for column in missing:
                update.add_column(column.name, iceberg_type(column.type), doc=column.comment or None)


def find_missing_columns(table: IcebergTable, wanted: Sequence[Column]) -> list[Column]:
    """Return the wanted columns that a table lacks, in their order."""
    existing = set(table.schema().column_names)
    return [column for column in wanted if column.name not in existing]


def describe_partitioning(table: IcebergTable) -> str:
    """Return the partitioning of a table as text."""
    schema = table.schema()
    terms = [f"{field.transform}({schema.find_column_name(field.source_id)})" for field in table.spec().fields]
    return ", ".join(terms) or "nothing"


def describe_wanted_partitioning(day_column: str | None) -> str:
    """Return the partitioning by a day column, in the format of `describe_partitioning`."""
    return f"day({day_column})" if day_column else "nothing"


def iceberg_type(text: str, element_id: int = 0) -> IcebergType:
    """Return the Iceberg type of a type name of `runs.table_schemas`.

    Args:
        text: the name.
        element_id: the field id of the elements of a list; Iceberg assigns another when it adds the column.

    Raises:
        PlanError: if there is no such type.
    """
    if elements := _LIST.fullmatch(text):
        return ListType(element_id, iceberg_type(elements[1]), element_required=False)
    if decimal := _DECIMAL.fullmatch(text):
        return DecimalType(int(decimal[1]), int(decimal[2]))
    if text not in _TYPES:
        msg = f"column type must be one of {', '.join(_TYPES)}, decimal(p,s) or list<..>, got {text!r}"
        raise PlanError(msg)
    return _TYPES[text]


def _create_or_evolve(catalog: Catalog, name: str, wanted: Table) -> IcebergTable:
    table = find_table(catalog, name) or create_table(catalog, name, wanted)
    require_compatible(table, name, wanted)
    add_columns(table, wanted.columns)
    return table


def _properties(wanted: Table) -> dict[str, str]:
    """Return the properties of a table; those of windows keep whole run ids as bounds of files."""
    return _PROPERTIES | ({_RUN_ID_BOUNDS: "full"} if wanted.day_column else {})


def _misfits(table: IcebergTable, wanted: Table) -> list[str]:
    columns = {column.name: column for column in wanted.columns}
    misfits = [_misfit(field, columns.get(field.name)) for field in table.schema().fields]
    if (partitioning := describe_partitioning(table)) != (
        wanted_partitioning := describe_wanted_partitioning(wanted.day_column)
    ):
        misfits.append(f"partitioned by: expected {wanted_partitioning}, found {partitioning}")
    return [misfit for misfit in misfits if misfit]


def _misfit(field: NestedField, column: Column | None) -> str | None:
    """Describe a column that doesn't fit; an optional one that only the table has fits and is null in new rows."""
    actual = type_text(field.field_type)
    if column is None:
        return f"{field.name}: expected no such column, found required {actual}" if field.required else None
    if type_text(iceberg_type(column.type)) != actual:
        return f"{field.name}: expected {column.type}, found {actual}"
    if field.required and not column.required:
        return f"{field.name}: expected {actual}, found required {actual}"
    return None


def _schema(wanted: Table) -> Schema:
    element_ids = new_element_ids(wanted.columns)
    return Schema(
        *(
            NestedField(
                field_id,
                column.name,
                iceberg_type(column.type, element_ids.get(column.name, 0)),
                required=column.required,
                doc=column.comment or None,
            )
            for field_id, column in enumerate(wanted.columns, start=1)
        )
    )


def is_list(column: Column) -> bool:
    """Return whether the values of a column are lists."""
    return _LIST.fullmatch(column.type) is not None


def new_element_ids(columns: Sequence[Column]) -> dict[str, int]:
    """Return the field ids of list elements in a new table: Iceberg numbers them after all columns."""
    lists = [column.name for column in columns if is_list(column)]
    return {name: element_id for element_id, name in enumerate(lists, start=len(columns) + 1)}


def _partition_spec(wanted: Table, schema: Schema) -> PartitionSpec:
    if wanted.day_column is None:
        return PartitionSpec()
    source_id = schema.find_field(wanted.day_column).field_id
    name = f"{wanted.day_column}_day"
    return PartitionSpec(PartitionField(source_id, _FIRST_PARTITION_FIELD, DayTransform(), name))
