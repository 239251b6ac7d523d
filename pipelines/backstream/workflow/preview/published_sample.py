"""Compare the rows of sampled keys with the published ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.catalog_address import table_identifier
from backstream.lake.diff import diff_rows
from backstream.lake.scans import list_files, pair_files_by_day, scan_files
from backstream.native.key_sample import keep_sampled_keys, read_sampled_keys
from backstream.native.raw_input import RawInput
from backstream.runs.home import Home

_RELATIVE_TOLERANCE = 1e-9
"""The last digits of a sum of doubles depend on the order of addition."""


def load_published_sample(home: Home, raw: RawInput, share: float) -> pa.Table | None:
    """Return the published rows of the sampled keys in the range of a plan; None if there is no table.

    Raises:
        ContractError: when another program has written the table in a way that backstream cannot read by day.
    """
    source = raw.definition.source
    with open_catalog_for_reading(home) as catalog:
        try:
            table = catalog.load_table(table_identifier(raw.plan.dataset))
        except NoSuchTableError:
            return None
        if not set(source.key) <= set(table.schema().column_names):
            return None
        files = list_files(table, raw.plan.range)
        rows = _read_local_files(table, files, raw, share)
        if rows is not None or not files:
            return rows
        scanned = (scan_files(table, part) for part, _ in pair_files_by_day(files, ()))
        kept = keep_sampled_keys(scanned, source.key, raw.plan.columns, share)
        return pa.concat_tables(kept) if kept else None


def _read_local_files(table: Table, files: Sequence[DataFile], raw: RawInput, share: float) -> pa.Table | None:
    """Return the rows of the sampled keys, read by DuckDB; None if it cannot: files in a store, or other types."""
    paths = [file.file_path.removeprefix("file://") for file in files]
    if not paths or not all(path.startswith("/") for path in paths):
        return None
    columns = [(field.field_id, field.name, str(field.field_type)) for field in table.schema().fields]
    return read_sampled_keys(paths, columns, raw.definition.source.key, raw.plan.columns, share)


def compare_rows(published: pa.Table | None, computed: pa.Table, row_key: Sequence[str]) -> pa.Table:
    """Return the differences as `diff_rows` does; those in the last digits of floating-point numbers are left out.

    For an added or removed row, `difference` is its value, or its negative value.
    """
    old = computed.slice(0, 0) if published is None else published
    columns = {name: _as_type(old, name, computed[name].type) for name in computed.column_names}
    changes = diff_rows(pa.table(columns), computed, row_key)
    is_floating = {name: pa.types.is_floating(computed[name].type) for name in computed.column_names}
    is_number = {name: is_floating[name] or _is_number(computed[name].type) for name in computed.column_names}
    parts = [_finish(part, name, is_number, is_floating) for name, part in _by_aggregate(changes)]
    return pa.concat_tables(parts) if parts else changes


def _as_type(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column in the type of the new rows; null where the table lacks it or has another kind of values."""
    if name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, kind)])
    try:
        return pc.cast(rows[name], kind, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([pa.nulls(rows.num_rows, kind)])


def _by_aggregate(changes: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for name in pc.unique(changes["aggregate"]).to_pylist():
        yield name, changes.filter(pc.equal(changes["aggregate"], name))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _finish(changes: pa.Table, name: str, is_number: dict[str, bool], is_floating: dict[str, bool]) -> pa.Table:
    if not is_number.get(name, False):
        return changes
    old, new = (pc.cast(changes[column], pa.float64()) for column in ("old_value", "new_value"))
    zero = pa.scalar(0.0)
    of_whole = pc.subtract(pc.fill_null(new, zero), pc.fill_null(old, zero))
    difference = pc.coalesce(changes["difference"], of_whole)
    changes = changes.set_column(changes.column_names.index("difference"), "difference", difference)
    if not is_floating[name]:
        return changes
    size = pc.max_element_wise(pc.abs(old), pc.abs(new))
    is_digit = pc.less_equal(pc.abs(pc.subtract(new, old)), pc.multiply(size, _RELATIVE_TOLERANCE))
    return changes.filter(pc.invert(pc.fill_null(is_digit, fill_value=False)))
