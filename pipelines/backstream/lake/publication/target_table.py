"""Map the columns of a result to those of a table that exists already, and check that it can take the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Self

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.transforms import UnknownTransform
from pyiceberg.types import IcebergType, NestedField, TimestampType, TimestamptzType

from backstream.errors import ContractError, PlanError
from backstream.lake import snapshots
from backstream.lake.catalog_address import namespace
from backstream.lake.scans import DAY_COLUMN
from backstream.lake.tables import type_text
from backstream.runs.table_schemas import RECORD_COUNT

_OPTIONAL = ("window_end", RECORD_COUNT, "run_id")
"""The columns of a result that the table may lack."""
_MAX_FORMAT = 2
_FILE_FORMAT = "write.format.default"


@dataclass(frozen=True, slots=True)
class TargetTable:
    """The section `[publish]`: a table, and its columns by those of the result where their names differ."""

    table: str
    columns: Mapping[str, str] = dataclass_field(default_factory=dict)

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Self | None:
        """Return the table that a definition names; None if it names none."""
        section = definition.get("publish")
        return cls(section["table"], dict(section["columns"])) if section else None

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the table from the text in the summary of a snapshot."""
        return cls(**json.loads(text))

    @property
    def identifier(self) -> tuple[str, ...]:
        """The namespace and the name."""
        return tuple(self.table.split("."))

    @property
    def window_start(self) -> str:
        """The table's column of the window start."""
        return self.name_of(DAY_COLUMN)

    def name_of(self, column: str) -> str:
        """Return the table's name of a column of the result."""
        return self.columns.get(column, column)

    def load(self, catalog: Catalog) -> Table:
        """Return the table in its current state.

        Raises:
            PlanError: if there is no such table.
        """
        try:
            return catalog.load_table(self.identifier)
        except NoSuchTableError:
            msg = f"no table `{self.table}` in the catalog (publish.table)\n\nhint: create it, or remove [publish]"
            raise PlanError(msg) from None

    def require_writable(self, table: Table, result: Mapping[str, IcebergType], definition_id: str) -> None:
        """Check that a publication can replace a range of the table in one commit.

        Args:
            table: the table.
            result: the types of the result's columns by name.
            definition_id: the id of the definition that publishes.

        Raises:
            PlanError: with the reasons why it cannot.
        """
        if problems := [*self._table_problems(table, definition_id), *self._column_problems(table, result)]:
            facts = "".join(f"\n  {problem}" for problem in problems)
            msg = f"cannot publish into table `{self.table}`{facts}"
            raise PlanError(msg)

    def convert(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """Return rows of the result in the schema of the table; columns without a value are null.

        Raises:
            ContractError: if a required column has a null.
        """
        names = {self.name_of(name): name for name in rows.column_names}
        arrays = []
        for wanted, target in zip(schema.fields, schema.as_arrow(), strict=True):
            own = names.get(wanted.name)
            array = rows[own].cast(target.type) if own else pa.nulls(rows.num_rows, target.type)
            if wanted.required and array.null_count:
                msg = (
                    f"table `{self.table}` requires a value of {wanted.name}, and {array.null_count:,} of"
                    f" {rows.num_rows:,} rows have none"
                )
                raise ContractError(msg)
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=schema.as_arrow())

    def _table_problems(self, table: Table, definition_id: str) -> Iterator[str]:
        if table.name()[:-1] == namespace():
            yield "it is in the namespace of backstream's own tables; use a table of another namespace"
        if table.metadata.format_version > _MAX_FORMAT:
            yield f"it has format version {table.metadata.format_version}, and PyIceberg writes 1 and 2"
        if (kind := table.properties.get(_FILE_FORMAT, "parquet")) != "parquet":
            yield f"it has {kind} files ({_FILE_FORMAT}), and PyIceberg writes parquet"
        for part in table.spec().fields:
            name = table.schema().find_column_name(part.source_id) or ""
            if (
                isinstance(part.transform, UnknownTransform)
                or name not in table.schema().column_names
                or "." in name
            ):
                yield f"its partitioning by {part.transform}({name}) cannot be computed"
        for snapshot in snapshots.list_ancestors(table):
            writer = snapshots.summary_property(snapshot, snapshots.DEFINITION)
            if writer not in (None, definition_id):
                run_id = snapshots.summary_property(snapshot, snapshots.RUN_ID)
                yield f"another definition publishes into it (run {run_id})"
                return

    def _column_problems(self, table: Table, result: Mapping[str, IcebergType]) -> Iterator[str]:
        fields = {field.name: field for field in table.schema().fields}
        sources: dict[str, str] = {}
        for own in sorted(self.columns.keys() - result.keys()):
            yield f"publish.columns.{own}: the result has no such column"
        for own, own_type in result.items():
            name = self.name_of(own)
            if name in fields:
                yield from _type_problem(own_type, fields[name])
            elif own in self.columns or own not in _OPTIONAL:
                yield f"{own}: the table has no column `{name}`; set publish.columns.{own}"
            if (other := sources.setdefault(name, own)) != own:
                yield f"{name}: both {other} and {own} would be written to it"
        for field in fields.values():
            if field.required and field.name not in sources:
                yield f"{field.name}: the table requires a value, and no column of the result has it"


def _type_problem(own: IcebergType, target: NestedField) -> Iterator[str]:
    if not _is_convertible(own, target.field_type):
        yield f"{target.name}: a {own} cannot be written as {target.field_type}"


def _is_convertible(own: IcebergType, target: IcebergType) -> bool:
    """Return whether each value is kept: equal or wider types, and a timestamp without its zone, which is UTC."""
    if type_text(own) == type_text(target) or (
        isinstance(own, TimestamptzType) and isinstance(target, TimestampType)
    ):
        return True
    try:
        promote(own, target)
    except ResolveError:
        return False
    return True
