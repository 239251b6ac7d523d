"""Aggregates in parts: over records, over what those gave, and the value in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backstream.native.sql import column_alias, quote_name, quote_path, staging_columns
from backstream.native.task import INTEGERS, Aggregate, ChunkGrid, ReadSpec, TaskOutput
from backstream.runs.table_schemas import PANES_KEPT, RECORD_COUNT, pane_count


def partial_aggregate(aggregate: Aggregate, number: int) -> str:
    """Return the name of a part of an aggregate; no aggregate has a name like it."""
    return f"part__{aggregate.name}__{number}"


def aggregates_over_records(aggregate: Aggregate, reading: ReadSpec) -> list[str]:
    """Return the parts of an aggregate over records: of an average a sum of doubles and a count."""
    column = "*" if aggregate.column is None else column_alias(reading, aggregate.column)
    if aggregate.function == "avg":
        return [f"sum({column}::DOUBLE)", f"count({column})"]
    return [f"{aggregate.function}({column})"]


def storable_partials(aggregates: Sequence[Aggregate], reading: ReadSpec) -> dict[str, str]:
    """Return all parts over records by name, of types that a Parquet file holds exactly.

    DuckDB sums integers with 128 bits, and writes such a sum as a double.
    """
    found: dict[str, str] = {}
    for each in aggregates:
        is_whole = each.function == "sum" and each.column and reading.types[each.column] in INTEGERS
        for number, over in enumerate(aggregates_over_records(each, reading)):
            found[partial_aggregate(each, number)] = f"{over}::BIGINT" if is_whole else over
    return found


def merge_partials(aggregates: Sequence[Aggregate], only: str = "", suffix: str = "") -> dict[str, str]:
    """Return the parts by name over rows that have them, or those of the rows that meet a condition."""
    return {
        name + suffix: f"{each.function if each.function in ('min', 'max') else 'sum'}({quote_name(name)}){only}"
        for each in aggregates
        for name in partial_names(each)
    }


def partial_names(aggregate: Aggregate) -> Iterator[str]:
    """Return the names of an aggregate's parts."""
    for number in range(2 if aggregate.function == "avg" else 1):
        yield partial_aggregate(aggregate, number)


def final_value(aggregate: Aggregate, suffix: str = "") -> str:
    """Return the value of an aggregate out of its parts."""
    first, second = (quote_name(partial_aggregate(aggregate, number) + suffix) for number in range(2))
    if aggregate.function == "avg":
        return f"{first} / nullif({second}, 0)"
    return f"coalesce({first}, 0)" if aggregate.function == "count" else first


def pane_values(aggregates: Sequence[Aggregate]) -> dict[str, str]:
    """Return the counts and values of panes, over parts that have the pane's name as their suffix."""
    found: dict[str, str] = {}
    for pane in PANES_KEPT:
        count = pane_count(pane)
        found[count] = count
        for each in aggregates:
            found[f"{each.name}__{pane}"] = f"CASE WHEN {count} > 0 THEN {final_value(each, f'__{pane}')} END"
    return found


def published_windows_query(
    path: str, output: TaskOutput, aggregates: Sequence[Aggregate], pane: str, chunks: ChunkGrid
) -> str:
    """Return the columns of the table of windows, out of a file of panes.

    Args:
        path: the file.
        output: the table of windows.
        aggregates: the values of a window.
        pane: the one that is published; windows without it are left out.
        chunks: what the file is split by.
    """
    names = {each.name: f"{each.name}__{pane}" for each in aggregates} | {RECORD_COUNT: pane_count(pane)}
    columns = [f"{quote_name(names.get(name, name))} AS {quote_name(name)}" for name, _, _ in output.columns]
    split_by = staging_columns("epoch_ms(window_start)", chunks)
    columns += [f"{split_by[name]} AS {name}" for name in output.split_by]
    count = quote_name(pane_count(pane))
    return f"SELECT {', '.join(columns)} FROM read_parquet({quote_path(path)}) WHERE {count} > 0"
