"""Pair the rows of two states of a table, and return the pairs that differ, with DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from backstream.native.raw_input import open_shared_database
from backstream.native.sql import quote_name

_OLD, _NEW = "old_rows", "new_rows"
_BATCH_ROWS = 250_000


def find_changed_rows(
    old: pa.RecordBatchReader, new: pa.RecordBatchReader, by: Sequence[str], values: Sequence[str]
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the rows before and after, for each pair with another value and for each row without a partner.

    Two rows are a pair if they are equal in `by`, where null equals null. A row without a partner is paired with
    nulls. The pairs are sorted by `by`. DuckDB limits its memory, and spills to a folder.

    Args:
        old: the rows before, read once.
        new: the rows after, with the same columns.
        by: the columns that identify a row; the first one has no nulls.
        values: the columns to compare.
    """
    names = old.schema.names
    with open_shared_database() as database:
        database.register(_OLD, old)
        database.register(_NEW, new)
        pairs = database.sql(_pairs_query(names, by, values))
        for batch in pairs.to_arrow_reader(_BATCH_ROWS):
            rows = pa.Table.from_batches([batch])
            before, after = rows.select(range(len(names))), rows.select(range(len(names), 2 * len(names)))
            yield before.rename_columns(names), after.rename_columns(names)


def _pairs_query(names: Sequence[str], by: Sequence[str], values: Sequence[str]) -> str:
    def compare(name: str, operator: str) -> str:
        return f"o.{quote_name(name)} {operator} n.{quote_name(name)}"

    is_pair = " AND ".join(compare(name, "IS NOT DISTINCT FROM") for name in by)
    first = quote_name(by[0])
    differs = [f"o.{first} IS NULL", f"n.{first} IS NULL"]
    differs += [compare(name, "IS DISTINCT FROM") for name in values]
    columns = [
        f"{side}.{quote_name(name)} AS {side}{number}" for side in "on" for number, name in enumerate(names)
    ]
    order = ", ".join(f"coalesce(o.{quote_name(name)}, n.{quote_name(name)}) NULLS LAST" for name in by)
    return (
        f"SELECT {', '.join(columns)} FROM {_OLD} o FULL JOIN {_NEW} n ON {is_pair}"
        f" WHERE {' OR '.join(differs)} ORDER BY {order}"
    )
