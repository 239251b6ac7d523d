"""Count the changed rows of sampled keys by day, cause, and aggregate, and estimate those of all keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from backstream.eventtime.instants import epoch_ms
from backstream.lake.diff import ADDED, CHANGED, REMOVED, WINDOW
from backstream.native.key_sample import IS_NEW
from backstream.workflow.preview.causes import ChangeCause
from backstream.workflow.preview.result import AggregateEstimate, DayChange
from backstream.workflow.preview.scaling import Estimate, estimate_keys, estimate_total

CausesOf = Callable[[int, str | None, bool], tuple[ChangeCause, ...]]
"""A function of the day, the run that published a row, and whether the row has new records."""
_DAY, _COUNT = "day", "count_all"


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
