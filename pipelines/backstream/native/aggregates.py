"""Generate SQL for aggregates: partial values over records, merged partial values, and final values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backstream.native.record_scans import column_alias, time_in_ms
from backstream.native.sql import quote_name, quote_path, staging_columns
from backstream.native.task import INTEGERS, Aggregate, ChunkGrid, ReadSpec, TaskOutput
from backstream.runs.table_schemas import PANES_KEPT, RECORD_COUNT, pane_count_column


def partial_aggregate(aggregate: Aggregate, number: int) -> str:
    """Return the column name of a partial value; no aggregate has a name like this."""
    return f"part__{aggregate.name}__{number}"


def aggregates_over_records(aggregate: Aggregate, reading: ReadSpec) -> list[str]:
    """Return the partial values of an aggregate over records: for an average, a sum of doubles and a count."""
    column = "*" if aggregate.column is None else column_alias(reading, aggregate.column)
    if aggregate.function == "avg":
        return [f"sum({column}::DOUBLE)", f"count({column})"]
    return [f"{aggregate.function}({column})"]


def storable_partials(aggregates: Sequence[Aggregate], reading: ReadSpec) -> dict[str, str]:
    """Return all partial values over records by name, in types that Parquet stores exactly.

    DuckDB adds integers in 128 bits and writes such a sum as a double, so sums of integers are cast.
    """
    partials: dict[str, str] = {}
    for aggregate in aggregates:
        column = aggregate.column
        is_integer_sum = aggregate.function == "sum" and column and reading.types[column] in INTEGERS
        for number, value in enumerate(aggregates_over_records(aggregate, reading)):
            partials[partial_aggregate(aggregate, number)] = f"{value}::BIGINT" if is_integer_sum else value
    return partials


def merge_partials(aggregates: Sequence[Aggregate], only: str = "", suffix: str = "") -> dict[str, str]:
    """Return merged partial values by name, over rows that contain partial values.

    Args:
        aggregates: the aggregates.
        only: a `FILTER` clause that selects rows; empty: all rows.
        suffix: a suffix of the names.
    """
    return {
        name + suffix: f"{_merge_function(aggregate)}({quote_name(name)}){only}"
        for aggregate in aggregates
        for name in _partial_names(aggregate)
    }


def _merge_function(aggregate: Aggregate) -> str:
    return aggregate.function if aggregate.function in ("min", "max") else "sum"


def _partial_names(aggregate: Aggregate) -> Iterator[str]:
    """Yield the names of an aggregate's partial values."""
    for number in range(2 if aggregate.function == "avg" else 1):
        yield partial_aggregate(aggregate, number)


def final_value(aggregate: Aggregate, suffix: str = "") -> str:
    """Return the final value of an aggregate from its partial values."""
    first, second = (quote_name(partial_aggregate(aggregate, number) + suffix) for number in range(2))
    if aggregate.function == "avg":
        return f"{first} / nullif({second}, 0)"
    return f"coalesce({first}, 0)" if aggregate.function == "count" else first


def pane_values(aggregates: Sequence[Aggregate]) -> dict[str, str]:
    """Return the counts and values of panes, from partial values with the suffix of the pane."""
    values: dict[str, str] = {}
    for pane in PANES_KEPT:
        count = pane_count_column(pane)
        values[count] = count
        for aggregate in aggregates:
            values[f"{aggregate.name}__{pane}"] = (
                f"CASE WHEN {count} > 0 THEN {final_value(aggregate, f'__{pane}')} END"
            )
    return values


def published_windows_query(
    path: str, output: TaskOutput, aggregates: Sequence[Aggregate], pane: str, chunks: ChunkGrid
) -> str:
    """Return the query of the table of windows over a file of panes.

    Args:
        path: the file.
        output: the table of windows.
        aggregates: the aggregates of a window.
        pane: the published pane; windows without it are left out.
        chunks: the chunks by which the file is split.
    """
    names = {aggregate.name: f"{aggregate.name}__{pane}" for aggregate in aggregates} | {
        RECORD_COUNT: pane_count_column(pane)
    }
    columns = [f"{quote_name(names.get(name, name))} AS {quote_name(name)}" for name, _, _ in output.columns]
    split_by = staging_columns(time_in_ms("window_start"), chunks)
    columns += [f"{split_by[name]} AS {name}" for name in output.split_by]
    count = quote_name(pane_count_column(pane))
    return f"SELECT {', '.join(columns)} FROM read_parquet({quote_path(path)}) WHERE {count} > 0"
