"""Draw rows at random from a table of windows, and find the rows of some windows and keys, with DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from backstream.eventtime.instants import epoch_ms
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import TimeWindow
from backstream.native.raw_input import RawInput, Target, key_order_sql, open_shared_database, register_wanted
from backstream.native.record_scans import time_in_ms
from backstream.native.sql import quote_name

if TYPE_CHECKING:
    import duckdb

_BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True)
class PublishedRows:
    """Rows of a table of windows, for a dataset with the key columns of `raw`."""

    rows: pa.Table
    raw: RawInput

    def draw(self, count: int, salt: str, *, by_start: bool) -> list[Target]:
        """Return the windows and keys of some rows.

        Args:
            count: the largest number of rows.
            salt: the text that decides by its hash with a row which rows are drawn.
            by_start: whether `count` is that of each start of windows, not of all rows.
        """
        if not self.rows.num_rows:
            return []
        columns = [quote_name(name) for name in (*_BOUNDS, *self.raw.definition.source.key)]
        by = f"PARTITION BY {columns[0]} " if by_start else ""
        # Windows that cumulate have one start and key, but several ends.
        order = key_order_sql(columns[1:], salt)
        with self._open() as database:
            drawn = database.sql(
                f"SELECT {', '.join(columns)} FROM published"
                f" QUALIFY row_number() OVER ({by}ORDER BY {order}) <= {count}"
            ).to_arrow_table()
        return [self._target_of(row) for row in drawn.to_pylist()]

    def find(self, targets: Sequence[Target]) -> dict[Target, Mapping[str, Any]]:
        """Return the rows of windows and keys; those without a row are left out."""
        if not self.rows.num_rows or not targets:
            return {}
        names = self.raw.definition.source.key
        is_same = [f"p.{quote_name(name)} IS NOT DISTINCT FROM w.k{number}" for number, name in enumerate(names)]
        is_same += [
            f"{time_in_ms(f'p.{bound}')} = w.{side}" for bound, side in zip(_BOUNDS, ("low", "high"), strict=True)
        ]
        with self._open() as database:
            register_wanted(
                database,
                [(Interval(*target.window), target.key) for target in targets],
                names,
                self.raw.plan.columns,
            )
            found = database.sql(
                f"SELECT DISTINCT p.* FROM published p JOIN wanted w ON {' AND '.join(is_same)}"
            ).to_arrow_table()
        return {self._target_of(row): row for row in found.to_pylist()}

    def _target_of(self, row: Mapping[str, Any]) -> Target:
        window = TimeWindow(*(epoch_ms(row[name]) for name in _BOUNDS))
        return Target(window, tuple(row[name] for name in self.raw.definition.source.key))

    @contextmanager
    def _open(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with open_shared_database() as database:
            database.register("published", self.rows)
            yield database
