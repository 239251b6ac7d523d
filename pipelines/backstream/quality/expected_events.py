"""Compute the expected events per source partition and window, from a timetable if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from backstream.definition.model import Definition
from backstream.definition.run_sections import Expected
from backstream.errors import ContractError, SpecError
from backstream.eventtime.instants import utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import ONLY_PARTITION
from backstream.eventtime.time_zones import TimeZone
from backstream.quality.window_rows import times_to_ms
from backstream.runs.input_files import reason_ignored
from backstream.runs.plan import Plan
from backstream.source.local_times import list_local_ms

CELL = ["source_partition", "window_start_ms"]
"""The columns that identify one cell: a source partition and a window."""
CELL_TYPES = {"source_partition": "object", "window_start_ms": "int64"}
"""The types of these columns; an empty column has no type, and both sides of a join need the same."""


def expected_cells(plan: Plan, definition: Definition, produced: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that should contain events; consecutive ones that were not produced are one row.

    Args:
        plan: the plan with the range: windows that start in `[since, until)`.
        definition: the definition with the window and the expectations.
        produced: the cells of the metrics; their source partitions are expected if the definition names none.

    Returns:
        `source_partition`, `window_start_ms`, `expected_events` (0: unknown), and `windows` with their number in
        the row, in the order of time.

    Raises:
        SpecError: if the definition's `quality.expected` cannot be read, or is incomplete.
        ContractError: if its files lack a column or have another type.
    """
    quality = definition.quality
    named = quality.named_partitions
    observed = sorted(produced["source_partition"].unique())
    partitions = named or observed or _default_partitions(definition)
    if quality.expected is None:
        return _full_grid(plan, definition, partitions, produced)
    events = _load_timetable(definition, quality.expected, _event_time_range(plan, definition))
    if "source_partition" not in events:
        events["source_partition"] = _only_partition(partitions, definition)
    cells = _count_by_cell(plan, definition, events).assign(windows=1)
    return cells[cells["source_partition"].isin(named)] if named else cells


def _default_partitions(definition: Definition) -> tuple[str, ...]:
    """Return the expected partitions without names or events; a source without partitions is one partition."""
    return () if definition.source.partition else (ONLY_PARTITION,)


def _window_starts_ms(plan: Plan, definition: Definition) -> range:
    """Return the starts of all windows of the range."""
    unit_ms = definition.unit_ms
    first_ms = plan.since_ms + (definition.metric_windows.offset_ms - plan.since_ms) % unit_ms
    return range(first_ms, plan.until_ms, unit_ms)


def _full_grid(
    plan: Plan, definition: Definition, partitions: Sequence[str], produced: pd.DataFrame
) -> pd.DataFrame:
    """Return all cells of the grid: the produced ones, and a row for each gap between two of them."""
    names, starts_ms = sorted(partitions), _window_starts_ms(plan, definition)
    partition = pd.Index(names).get_indexer(pd.Index(produced["source_partition"]))
    number, rest_ms = np.divmod(produced["window_start_ms"].to_numpy() - starts_ms.start, starts_ms.step)
    is_on_grid = (partition >= 0) & (rest_ms == 0) & (number >= 0) & (number < len(starts_ms))
    # The grid of a source partition begins after window -1, and ends before the window after the last one.
    partition = np.append(partition[is_on_grid], np.repeat(np.arange(len(names)), 2))
    number = np.append(number[is_on_grid], np.tile([-1, len(starts_ms)], len(names)))
    order = np.lexsort((number, partition))
    partition, number = partition[order], number[order]
    is_produced = (number >= 0) & (number < len(starts_ms))
    gap = np.diff(number, append=0) - 1
    is_gap = (gap > 0) & (number < len(starts_ms))
    cells = pd.DataFrame(
        {
            "source_partition": np.array(names, dtype=object)[
                np.append(partition[is_produced], partition[is_gap])
            ],
            "window_start_ms": np.append(number[is_produced], number[is_gap] + 1) * starts_ms.step
            + starts_ms.start,
            "expected_events": 0,
            "windows": np.append(np.ones(int(is_produced.sum()), dtype=np.int64), gap[is_gap]),
        }
    )
    return cells.astype(CELL_TYPES).sort_values(CELL[::-1], ignore_index=True)


def _count_by_cell(plan: Plan, definition: Definition, events: pd.DataFrame) -> pd.DataFrame:
    """Count the expected events of each window of the range; an event counts in each of its windows."""
    counts = pd.concat(_assign_windows(events, definition)).groupby(CELL).size()
    cells = counts.rename("expected_events").reset_index()
    in_range = cells["window_start_ms"].between(plan.since_ms, plan.until_ms, inclusive="left")
    return cells[in_range].sort_values(CELL[::-1], ignore_index=True)


def _assign_windows(events: pd.DataFrame, definition: Definition) -> list[pd.DataFrame]:
    """Return the events once per window: with the start of the latest window, then of each earlier one."""
    window, unit_ms = definition.metric_windows, definition.unit_ms
    last_ms = events["event_time_ms"] - (events["event_time_ms"] - window.offset_ms) % unit_ms
    frames = []
    for offset_ms in range(0, max(window.size_ms, unit_ms), unit_ms):
        start_ms = last_ms - offset_ms
        is_in_window = start_ms > events["event_time_ms"] - window.size_ms
        frames.append(events.assign(window_start_ms=start_ms)[is_in_window])
    return frames


def _only_partition(candidates: Sequence[str], definition: Definition) -> str:
    """Return the source partition of a timetable without partitions."""
    if len(candidates) > 1:
        msg = (
            f"quality.expected.partition is missing, but {definition.name} has {len(candidates)} "
            f"source partitions: {', '.join(sorted(candidates)[:10])}"
        )
        raise SpecError(msg)
    return candidates[0] if candidates else ONLY_PARTITION


def _event_time_range(plan: Plan, definition: Definition) -> Interval:
    """Return the event times that the windows of the range can contain."""
    times, zone = Interval(plan.since_ms, plan.until_ms + definition.metric_windows.size_ms), _zone(definition)
    return zone.instant_span(times) if zone else times


def _zone(definition: Definition) -> TimeZone | None:
    return definition.metric_windows.zone


def _load_timetable(definition: Definition, expected: Expected, times: Interval) -> pd.DataFrame:
    """Return `event_time_ms`, and `source_partition` if the timetable has it, of the events in a range."""
    from pyarrow import compute, scalar, timestamp

    timetable = _open_timetable(definition, expected)
    time_type = timetable.schema.field(expected.event_time).type
    start, end = (
        scalar(utc_datetime(at_ms), timestamp("ms", "UTC")).cast(time_type)
        for at_ms in (times.start_ms, times.end_ms)
    )
    event_time = compute.field(expected.event_time)
    columns = {"event_time": event_time}
    if expected.partition:
        columns["source_partition"] = compute.field(expected.partition).cast("string")
    rows = timetable.to_table(columns=columns, filter=(event_time >= start) & (event_time < end)).to_pandas()
    events: pd.DataFrame = rows.rename(columns={"event_time": "event_time_ms"})
    events["event_time_ms"] = list_local_ms(_zone(definition), times_to_ms(events["event_time_ms"]).to_numpy())
    return events


def _open_timetable(definition: Definition, expected: Expected) -> Any:
    """Open the files of the timetable, and check that they have the columns that the definition names."""
    from pyarrow import ArrowException, dataset

    key = f"quality.expected.path of {definition.name}"
    source = f"{expected.path}, {key}"
    if not Path(expected.path).exists():
        msg = f"no file of expected events at {expected.path} ({key})"
        raise SpecError(msg)
    files = _list_files(Path(expected.path))
    if not files:
        msg = f"no Parquet files of expected events ({source})"
        raise SpecError(msg)
    options: dict[str, Any] = {"format": "parquet", "partitioning": "hive", "partition_base_dir": expected.path}
    try:
        schema = _unify_schemas(files, dataset.dataset(files, **options).schema, expected)
    except TypeError as error:
        msg = f"expected events break their contract ({source}):\n  {error}"
        raise ContractError(msg) from None
    except (OSError, ArrowException) as error:
        msg = f"expected events are not Parquet ({source})"
        raise SpecError(msg) from error
    problems = _schema_problems(schema, expected)
    if problems:
        lines = "".join(f"\n  {line}" for line in problems)
        msg = f"expected events break their contract ({source}):{lines}"
        raise ContractError(msg)
    return dataset.dataset(files, schema=schema, **options)


def _list_files(root: Path) -> list[str]:
    """Return the files of a timetable, by the same rule as the files of a source."""
    if root.is_file():
        return [str(root)]
    paths = (path for path in sorted(root.rglob("*")) if reason_ignored(path.relative_to(root).parts) is None)
    return [str(path) for path in paths if path.is_file()]


def _unify_schemas(files: Sequence[str], dataset_schema: Any, expected: Expected) -> Any:
    """Return the named columns, each with a type that fits all files that have the column."""
    import pyarrow as pa
    from pyarrow import parquet

    named = [name for name in (expected.event_time, expected.partition) if name]
    schemas = [parquet.read_schema(file) for file in files]
    parts = [pa.schema([schema.field(name) for name in named if name in schema.names]) for schema in schemas]
    unified = pa.unify_schemas(parts, promote_options="permissive")
    # A column that no file has may be the name of a folder: `partition=JFK`.
    folder_columns = [
        dataset_schema.field(name) for name in named if name not in unified.names and name in dataset_schema.names
    ]
    return pa.schema([*unified, *folder_columns])


def _schema_problems(schema: Any, expected: Expected) -> list[str]:
    """Return the missing columns and wrong types of the timetable, one line each."""
    from pyarrow import types

    named = [name for name in (expected.event_time, expected.partition) if name]
    problems = [f"{name}: got no such column" for name in named if name not in schema.names]
    if expected.event_time in schema.names:
        time_type = schema.field(expected.event_time).type
        if not types.is_timestamp(time_type):
            problems.append(f"{expected.event_time}: expected timestamp, got {time_type}")
    return problems
