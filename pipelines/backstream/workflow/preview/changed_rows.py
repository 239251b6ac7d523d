"""Count the changed rows of sampled keys by day, cause, and aggregate, and estimate those of all keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from backstream.eventtime.instants import epoch_ms
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.catalog_address import table_identifier
from backstream.lake.diff import ADDED, CHANGED, REMOVED, WINDOW, diff_rows
from backstream.lake.scans import list_files, pair_files_by_day, scan_files
from backstream.lake.storage import plain_path
from backstream.native.key_sample import IS_NEW, keep_sampled_keys, read_sampled_keys
from backstream.native.raw_input import RawInput
from backstream.runs.home import Home
from backstream.workflow.preview.causes import ChangeCause
from backstream.workflow.preview.preview_result import AggregateEstimate, DayChange
from backstream.workflow.preview.scaling import Estimate, estimate_keys, estimate_total

CausesOf = Callable[[int, str | None, bool], tuple[ChangeCause, ...]]
"""A function of the day, the run that published a row, and whether the row has new records."""
_DAY, _COUNT = "day", "count_all"
_RELATIVE_TOLERANCE = 1e-9
"""The last digits of a sum of doubles depend on the order of addition."""


class ChangedRows:
    """The changed rows of sampled keys.

    Args:
        changes: the differences as `compare_rows` returns them, with `IS_NEW`.
        keys: the names of the key columns.
        share: the share of the keys in the sample.
    """

    def __init__(self, changes: pa.Table, keys: Sequence[str], share: float) -> None:
        self._keys, self._share = list(keys), share
        days = pc.floor_temporal(changes["window_start"], unit="day")
        self._changes = changes.append_column(_DAY, days)
        others = [name for name in ("event_time", "row_index") if name in changes.column_names]
        columns = [*WINDOW, *keys, *others, "change", "old_run_id", IS_NEW, _DAY]
        self._rows = self._changes.group_by(list(dict.fromkeys(columns))).aggregate([])

    def estimate_keys(self) -> Estimate:
        """Return the number of keys with a changed row."""
        count = len(_count_by_key(self._rows, self._keys))
        return Estimate(count / self._share, *estimate_keys(count, self._share))

    def estimate_rows(self) -> Estimate:
        """Return the number of changed rows."""
        return estimate_total(_count_by_key(self._rows, self._keys), self._share, is_count=True)

    def count_kinds(self) -> dict[str, int]:
        """Return the number of changed rows of sampled keys by kind of change."""
        found = _count_by_value(self._rows["change"])
        return {kind: found.get(kind, 0) for kind in (ADDED, REMOVED, CHANGED)}

    def list_days(self, causes_of: CausesOf) -> list[DayChange]:
        """Return the days with changed rows, in order."""
        causes: dict[int, Counter[str]] = defaultdict(Counter)
        groups = self._rows.group_by([_DAY, "old_run_id", IS_NEW]).aggregate([([], "count_all")])
        for row in groups.to_pylist():
            day_ms = epoch_ms(row[_DAY])
            for cause in causes_of(day_ms, row["old_run_id"] or None, bool(row[IS_NEW])):
                causes[day_ms][cause.value] += row[_COUNT]
        counts: dict[int, list[int]] = defaultdict(list)
        by_key = self._rows.group_by([_DAY, *self._keys]).aggregate([([], "count_all")])
        for day, count in zip(by_key[_DAY].to_pylist(), by_key[_COUNT].to_pylist(), strict=True):
            counts[epoch_ms(day)].append(count)
        return [
            DayChange(
                day_ms,
                sum(counts[day_ms]),
                estimate_total(counts[day_ms], self._share, is_count=True),
                dict(causes[day_ms].most_common()),
            )
            for day_ms in sorted(counts)
        ]

    def list_aggregates(self) -> list[AggregateEstimate]:
        """Return the changes of each aggregate, by name."""
        counts = _count_by_value(self._changes["aggregate"])
        is_finite = pc.fill_null(pc.is_finite(self._changes["difference"]), fill_value=False)
        sums = self._changes.filter(is_finite).group_by(["aggregate", *self._keys])
        table = sums.aggregate([("difference", "sum")])
        values: dict[str, list[float]] = defaultdict(list)
        for name, value in zip(table["aggregate"].to_pylist(), table["difference_sum"].to_pylist(), strict=True):
            values[name].append(value)
        return [
            AggregateEstimate(name, counts[name], estimate_total(values[name], self._share))
            for name in sorted(counts)
        ]


def _count_by_value(values: pa.ChunkedArray) -> dict[str, int]:
    return {found["values"]: found["counts"] for found in pc.value_counts(values).to_pylist()}


def _count_by_key(rows: pa.Table, keys: Sequence[str]) -> list[int]:
    """Return the number of rows of each key."""
    if not keys:
        return [rows.num_rows] if rows.num_rows else []
    counts: list[int] = rows.group_by(list(keys)).aggregate([([], "count_all")])[_COUNT].to_pylist()
    return counts


def estimate_row_count(rows: pa.Table, keys: Sequence[str], share: float) -> Estimate:
    """Return the number of rows of all keys, given those of sampled keys."""
    return estimate_total(_count_by_key(rows, keys), share, is_count=True)


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
    paths = [plain_path(file.file_path) for file in files]
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
