"""What should have come: source partition x window, counted from a timetable where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from backstream.definition.model import Definition, Expected
from backstream.errors import ContractError, SpecError
from backstream.eventtime.instants import utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import ONLY_PARTITION
from backstream.runs.input_files import reason_ignored
from backstream.runs.plan import Plan

CELL = ["source_partition", "window_start_ms"]
"""What identifies one cell of the grid."""
CELL_TYPES = {"source_partition": "object", "window_start_ms": "int64"}
"""Said explicitly: an empty column has no type of its own, and two sides of a join must agree."""


def expected_cells(plan: Plan, definition: Definition, observed: Sequence[str]) -> pd.DataFrame:
    """One row per source partition and window that should hold events.

    Args:
        plan: gives the range: windows that start in `[since, until)`.
        definition: gives the window, and what is expected.
        observed: source partitions that delivered anything; expected if the definition names none.

    Returns:
        `source_partition`, `window_start_ms`, `expected_events` (0: not known), in order of time.

    Raises:
        SpecError: when the definition's `quality.expected` cannot be read, or names too little.
        ContractError: when its files lack a column or hold another type.
    """
    quality = definition.quality
    named = None if quality.expected_partitions == "observed" else quality.expected_partitions
    delivering = named or observed or _silent(definition)
    if quality.expected is None:
        return _every_window(plan, definition, delivering)
    events = _timetable(definition, quality.expected, _times_read(plan, definition))
    if "source_partition" not in events:
        events["source_partition"] = _only_partition(delivering, definition)
    cells = _counted(plan, definition, events)
    return cells[cells["source_partition"].isin(named)] if named else cells


def _silent(definition: Definition) -> tuple[str, ...]:
    """What is expected where nothing was named and nothing came: a source without partitions is one itself."""
    return () if definition.source.partition else (ONLY_PARTITION,)


def window_starts_ms(plan: Plan, definition: Definition) -> range:
    """Starts of all windows of the range."""
    unit_ms = definition.unit_ms
    first_ms = plan.since_ms + (definition.metric_windows.offset_ms - plan.since_ms) % unit_ms
    return range(first_ms, plan.until_ms, unit_ms)


def _every_window(plan: Plan, definition: Definition, partitions: Sequence[str]) -> pd.DataFrame:
    starts_ms = list(window_starts_ms(plan, definition))
    grid = pd.MultiIndex.from_product([starts_ms, sorted(partitions)], names=CELL[::-1])
    cells = grid.to_frame(index=False)[CELL].astype(CELL_TYPES)
    return cells.assign(expected_events=0)


def _counted(plan: Plan, definition: Definition, events: pd.DataFrame) -> pd.DataFrame:
    """Windows of the range with at least one expected event; an event counts in each of its windows."""
    counts = pd.concat(_assigned(events, definition)).groupby(CELL).size()
    cells = counts.rename("expected_events").reset_index()
    in_range = cells["window_start_ms"].between(plan.since_ms, plan.until_ms, inclusive="left")
    return cells[in_range].sort_values(CELL[::-1], ignore_index=True)


def _assigned(events: pd.DataFrame, definition: Definition) -> list[pd.DataFrame]:
    """The events once per window: with the latest window's start, then with one slide earlier each."""
    cells, unit_ms = definition.metric_windows, definition.unit_ms
    last_ms = events["event_time_ms"] - (events["event_time_ms"] - cells.offset_ms) % unit_ms
    assigned = []
    for back_ms in range(0, max(cells.size_ms, unit_ms), unit_ms):
        start_ms = last_ms - back_ms
        holds_event = start_ms > events["event_time_ms"] - cells.size_ms
        assigned.append(events.assign(window_start_ms=start_ms)[holds_event])
    return assigned


def _only_partition(candidates: Sequence[str], definition: Definition) -> str:
    """The source partition that a timetable without partitions speaks of."""
    if len(candidates) > 1:
        msg = (
            f"quality.expected.partition is missing, but {definition.name} has {len(candidates)} "
            f"source partitions: {', '.join(sorted(candidates)[:10])}"
        )
        raise SpecError(msg)
    return candidates[0] if candidates else ONLY_PARTITION


def _times_read(plan: Plan, definition: Definition) -> Interval:
    """Event times that a window of the range can hold."""
    return Interval(plan.since_ms, plan.until_ms + definition.metric_windows.size_ms)


def _timetable(definition: Definition, expected: Expected, times: Interval) -> pd.DataFrame:
    """`event_time_ms`, and `source_partition` if the timetable knows it, of the events in a range."""
    from pyarrow import compute, scalar, timestamp

    opened = _opened(definition, expected)
    time_type = opened.schema.field(expected.event_time).type
    first, end = (
        scalar(utc_datetime(at_ms), timestamp("ms", "UTC")).cast(time_type)
        for at_ms in (times.start_ms, times.end_ms)
    )
    at = compute.field(expected.event_time)
    columns = {"event_time": at}
    if expected.partition:
        columns["source_partition"] = compute.field(expected.partition).cast("string")
    rows = opened.to_table(columns=columns, filter=(at >= first) & (at < end)).to_pandas()
    events: pd.DataFrame = rows.rename(columns={"event_time": "event_time_ms"})
    events["event_time_ms"] = times_to_ms(events["event_time_ms"])
    return events


def times_to_ms(times: Any) -> Any:
    """Epoch milliseconds of a column of timestamps; those without zone are UTC."""
    return pd.to_datetime(times, utc=True).dt.as_unit("ms").astype("int64")


def _opened(definition: Definition, expected: Expected) -> Any:
    """The timetable's files, checked to have the columns that the definition names."""
    from pyarrow import ArrowException, dataset

    key = f"quality.expected.path of {definition.name}"
    where = f"{expected.path}, {key}"
    if not Path(expected.path).exists():
        msg = f"no file of expected events at {expected.path} ({key})"
        raise SpecError(msg)
    files = _files(Path(expected.path))
    if not files:
        msg = f"no Parquet files of expected events ({where})"
        raise SpecError(msg)
    how: dict[str, Any] = {"format": "parquet", "partitioning": "hive", "partition_base_dir": expected.path}
    try:
        opened = dataset.dataset(files, **how)
        schema = _schema(files, opened.schema, expected)
    except TypeError as error:
        msg = f"expected events break their contract ({where}):\n  {error}"
        raise ContractError(msg) from None
    except (OSError, ArrowException) as error:
        msg = f"expected events are not Parquet ({where})"
        raise SpecError(msg) from error
    wrong = _broken(schema, expected)
    if wrong:
        listed = "".join(f"\n  {line}" for line in wrong)
        msg = f"expected events break their contract ({where}):{listed}"
        raise ContractError(msg)
    return dataset.dataset(files, schema=schema, **how)


def _files(root: Path) -> list[str]:
    """The files of a timetable by the rule for those of a source."""
    if root.is_file():
        return [str(root)]
    found = (path for path in sorted(root.rglob("*")) if reason_ignored(path.relative_to(root).parts) is None)
    return [str(path) for path in found if path.is_file()]


def _schema(files: Sequence[str], found: Any, expected: Expected) -> Any:
    """The columns that the definition names, each with the type that holds it in all files that have it."""
    import pyarrow as pa
    from pyarrow import parquet

    named = [name for name in (expected.event_time, expected.partition) if name]
    schemas = [parquet.read_schema(file) for file in files]
    parts = [pa.schema([each.field(name) for name in named if name in each.names]) for each in schemas]
    united = pa.unify_schemas(parts, promote_options="permissive")
    # What no file has may be the name of a folder: `partition=JFK`.
    folders = [found.field(name) for name in named if name not in united.names and name in found.names]
    return pa.schema([*united, *folders])


def _broken(schema: Any, expected: Expected) -> list[str]:
    """What the timetable lacks, one line each."""
    from pyarrow import types

    named = [name for name in (expected.event_time, expected.partition) if name]
    absent = [f"{name}: got no such column" for name in named if name not in schema.names]
    if expected.event_time in schema.names:
        time_type = schema.field(expected.event_time).type
        if not types.is_timestamp(time_type):
            absent.append(f"{expected.event_time}: expected timestamp, got {time_type}")
    return absent
