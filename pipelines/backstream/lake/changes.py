"""What a run changes, summed up: a few numbers and the largest changes, however many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from backstream.lake.differences import ADDED, CHANGED, REMOVED, WINDOW

_SIZE = "size"


@dataclass(slots=True)
class AggregateChange:
    """One aggregate over all windows that changed; the sums count those whose difference is a number.

    `largest` has the rows with the largest difference, largest first.
    """

    rows: int = 0
    difference: float = 0.0
    absolute: float = 0.0
    largest: list[pa.Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Changes:
    """Windows and keys per kind of change, what happened to each aggregate, and how many each old run had said."""

    windows: Mapping[str, int]
    aggregates: Mapping[str, AggregateChange]
    old_runs: Mapping[str, int]

    def largest(self, limit: int) -> pa.Table | None:
        """The largest changes of each aggregate, largest first; None when nothing changed."""
        kept = [table.slice(0, limit) for each in self.aggregates.values() for table in each.largest]
        return pa.concat_tables(kept) if kept else None


def summed(changes: Iterable[pa.Table], keys: Sequence[str], limit: int) -> Changes:
    """The sum of what `differences` told, one table at a time; `limit` rows are kept per aggregate."""
    windows: Counter[str] = Counter({ADDED: 0, REMOVED: 0, CHANGED: 0})
    old_runs: Counter[str] = Counter()
    aggregates: dict[str, AggregateChange] = {}
    for found in changes:
        once = found.group_by([*WINDOW, *keys, "change", "old_run_id"]).aggregate([])
        windows.update(once["change"].to_pylist())
        old_runs.update(run_id for run_id in once["old_run_id"].to_pylist() if run_id)
        for name in pc.unique(found["aggregate"]).to_pylist():
            rows = found.filter(pc.equal(found["aggregate"], name))
            _add(aggregates.setdefault(name, AggregateChange()), rows, limit)
    return Changes(windows, dict(sorted(aggregates.items())), dict(old_runs.most_common()))


def _add(total: AggregateChange, rows: pa.Table, limit: int) -> None:
    numbers = rows["difference"].drop_null()
    numbers = numbers.filter(pc.is_finite(numbers))
    total.rows += rows.num_rows
    total.difference += pc.sum(numbers).as_py() or 0.0
    total.absolute += pc.sum(pc.abs(numbers)).as_py() or 0.0
    both = pa.concat_tables([*total.largest, rows])
    order = [(_SIZE, "descending"), *((name, "ascending") for name in rows.column_names)]
    sized = both.append_column(_SIZE, pc.abs(both["difference"])).sort_by(order)
    total.largest = [sized.drop_columns([_SIZE]).slice(0, limit).combine_chunks()]
