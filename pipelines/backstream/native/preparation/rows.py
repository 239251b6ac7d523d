"""Convert parsed JSON lines to the rows of prepared files, with the columns and types that Spark writes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition import prepared_columns
from backstream.eventtime.records import ONLY_PARTITION
from backstream.eventtime.union import SEPARATOR
from backstream.native.preparation.folders import FOLDER_KINDS
from backstream.native.preparation.instants import INSTANT, instants_of_numbers, instants_of_texts
from backstream.native.preparation.kinds import DOUBLE, TIMESTAMP, Leaf, list_leaves
from backstream.native.preparation.task import Piece, TextSpec, TimeSpec, UnionSpec, UnusualRowsError


class RowMaker:
    """Maker of prepared rows from the declared columns of JSON lines."""

    def __init__(self, spec: TextSpec) -> None:
        self.spec = spec
        self._leaves = dict(list_leaves({**spec.kinds, **spec.folders}))

    def prepared_rows(self, records: pa.Table, piece: Piece) -> pa.Table:
        """Return the prepared rows of readable records of a piece.

        Raises:
            UnusualRowsError: if records have no time, or a value that Spark could read in another way.
            UnusualLinesError: if this is so, and the records are not known.
        """
        spec, count = self.spec, records.num_rows
        values = {leaf: self._value(records, leaf) for leaf in self._leaves if leaf[0] not in spec.folders}
        for name, kind in spec.folders.items():
            values[name,] = pa.repeat(pa.scalar(piece.folder_values[name], FOLDER_KINDS[kind]), count)
        columns = {prepared_columns.EVENT_TIME: self._instants(values, spec.event)}
        texts = [prepared_columns.EVENT_TEXT]
        if spec.arrival:
            columns[prepared_columns.ARRIVAL_TIME] = self._instants(values, spec.arrival)
            texts.append(prepared_columns.ARRIVAL_TEXT)
        columns |= {name: values[leaf] for name, leaf in spec.payload.items()}
        if spec.union:
            columns |= _union_columns(spec.union, values, count)
        columns |= {
            name: pa.nulls(count, pa.string())
            for name in (*texts, prepared_columns.RECORD, prepared_columns.REASON)
        }
        columns[prepared_columns.FILE] = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [piece.uri])
        columns[prepared_columns.LINE] = pa.nulls(count, pa.int64())
        names = self._names_without_nulls()
        fields = [pa.field(name, column.type, nullable=name not in names) for name, column in columns.items()]
        return pa.table([*columns.values()], schema=pa.schema(fields))

    def _names_without_nulls(self) -> set[str]:
        """Return the columns that Spark declares as never null: those that don't depend on a record."""
        union = self.spec.union
        constants = {
            prepared_columns.FILE: True,
            prepared_columns.PARTITION: union is not None and union.partition is None,
            prepared_columns.SEQUENCE: union is not None and union.sequence is None,
        }
        return {name for name, is_constant in constants.items() if is_constant}

    def _value(self, records: pa.Table, leaf: Leaf) -> pa.Array:
        """Return a plain value of each record, of which Arrow has read timestamps as text."""
        (column,) = records[leaf[0]].chunks
        value = pc.struct_field(column, list(leaf[1:])) if leaf[1:] else column
        kind = self._leaves[leaf]
        if kind == TIMESTAMP:
            return instants_of_texts(value)
        if kind == DOUBLE:
            _require_ordinary_numbers(value)
        return value

    def _instants(self, values: dict[Leaf, pa.Array], time: TimeSpec) -> pa.Array:
        value = values[time.leaf]
        if value.null_count:
            msg = f"a record has no {time.name}"
            raise UnusualRowsError(msg, value.is_null())
        if self._leaves[time.leaf] == TIMESTAMP:
            return value
        return (
            instants_of_numbers(value, time.unit)
            if time.unit
            else instants_of_texts(value, needs_zone=time.needs_zone)
        )


def _require_ordinary_numbers(numbers: pa.Array) -> None:
    """Check that no number is -0.0 or infinite.

    For Spark, the text `-0` is an integer, and its zero has no sign. Spark counts numbers that are too large.
    """
    values = numbers.to_numpy(zero_copy_only=False)
    is_unusual = ((values == 0) & np.signbit(values)) | np.isinf(values)
    if is_unusual.any():
        msg = "a number is a negative zero, or too large for a double"
        raise UnusualRowsError(msg, is_unusual)


def _union_columns(union: UnionSpec, values: dict[Leaf, pa.Array], count: int) -> dict[str, pa.Array]:
    """Return the columns that all sources of a union have."""
    partition = values[union.partition].cast(pa.string()) if union.partition else ONLY_PARTITION
    names = pc.binary_join_element_wise(f"{union.name}{SEPARATOR}", partition, "")
    sequence = values[union.sequence].cast(pa.int64()) if union.sequence else pa.array(np.zeros(count, np.int64))
    return {
        prepared_columns.PARTITION: names if isinstance(names, pa.Array) else pa.repeat(names, count),
        prepared_columns.SEQUENCE: sequence,
        prepared_columns.MARKER: pa.nulls(count, INSTANT),
    }
