"""Counting what an input file delivered: for the seals of days, which ask who has sent what, and when last."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition.model import Definition, Source
from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import ONLY_PARTITION
from backstream.eventtime.seals import DaySeal, Delivery, SealRule, seal_days
from backstream.runs.file_summaries import load_summary, write_summary
from backstream.runs.home import Home
from backstream.runs.plan import InputFile
from backstream.source.reader import scan_row_groups
from backstream.source.time_columns import TimeColumn

_PLACED = pa.schema([("partition", pa.string()), ("day_ms", pa.int64()), ("at_ms", pa.int64())])


def count_deliveries(path: Path, definition: Definition) -> list[list[Any]]:
    """Per partition and UTC day of event time the records that can be read, and their last arrival.

    Raises:
        UnreadableError: when the file is damaged.
        PlanError: when only Spark can evaluate the event or arrival times.
    """
    source = definition.timed_source
    event = TimeColumn.from_expression(source.event_time, "source.event_time")
    arrival = TimeColumn.from_expression(source.arrival_time or "", "source.arrival_time")
    names = sorted({event.name, arrival.name, *({source.partition} if source.partition else ())})
    parts = [_placed(rows, source, event, arrival) for rows in scan_row_groups(path, names)]
    whole = pa.concat_tables([_PLACED.empty_table(), *parts])
    found = whole.group_by(["partition", "day_ms"]).aggregate([("at_ms", "count"), ("at_ms", "max")])
    columns = [found[name].to_pylist() for name in ("partition", "day_ms", "at_ms_count", "at_ms_max")]
    return [list(row) for row in zip(*columns, strict=True)]


def _placed(rows: pa.Table, source: Source, event: TimeColumn, arrival: TimeColumn) -> pa.Table:
    """The records that can be read."""
    for name in rows.column_names:
        rows = rows.filter(pc.is_valid(rows[name]))
    if not rows.num_rows:
        return _PLACED.empty_table()
    event_ms, arrival_ms = event.values_ms(rows[event.name]), arrival.values_ms(rows[arrival.name])
    columns = [_partitions(rows, source.partition), pa.array(event_ms // DAY_MS * DAY_MS), pa.array(arrival_ms)]
    return pa.table(columns, schema=_PLACED).filter(pa.array(_is_sane(event_ms, source.event_time_range)))


def _is_sane(event_ms: np.ndarray, bounds_ms: tuple[int, int]) -> np.ndarray:
    return (event_ms >= bounds_ms[0]) & (event_ms < bounds_ms[1])


def _partitions(rows: pa.Table, column: str | None) -> pa.ChunkedArray | pa.Array:
    if column is None:
        return pa.array([ONLY_PARTITION] * rows.num_rows, pa.string())
    return rows[column].cast(pa.string())


log = logging.getLogger(__name__)
_SHOWN = 10


def find_day_seals(
    definition: Definition, inputs: Sequence[InputFile], interval: Interval, home: Home
) -> list[DaySeal]:
    """The seal of each day of an interval; none without `backfill.max_arrival_delay` or arrival times.

    Raises:
        PlanError: when only Spark can evaluate the event or arrival times.
    """
    horizon_ms, quality = definition.backfill.max_arrival_delay, definition.quality
    if horizon_ms is None or definition.source.arrival_time is None:
        return []
    partitions = None if quality.expected_partitions == "observed" else tuple(quality.expected_partitions)
    rule = SealRule(horizon_ms, partitions, definition.watermark.idle_timeout)
    files = [file for file in inputs if file.rows]
    delivered = _delivered(files, definition, _name(definition), home)
    return seal_days(range(interval.start_ms, interval.end_ms, DAY_MS), delivered, rule)


def require_sealed_days(definition: Definition, days: Sequence[DaySeal], where: str) -> None:
    """Check that no day that is about to be published as final can still gain events.

    Raises:
        PlanError: naming those that can, ten at most, with what is missing.
    """
    unsealed = [day for day in days if not day.seal.is_final]
    if unsealed:
        more = f"\n  and {len(unsealed) - _SHOWN} more" if len(unsealed) > _SHOWN else ""
        listed = "".join(f"\n  {seal_text(day)} is {day.seal}: {day.reason}" for day in unsealed[:_SHOWN]) + more
        count = f"{len(unsealed)} of {len(days)} days are" if len(days) > 1 else "the day is"
        msg = (
            f"cannot publish {definition.name} as final: {count} not sealed ({where}){listed}\n\n"
            "hint: end the range earlier, or add --allow-unsealed, which the report and the ledger will say"
        )
        raise PlanError(msg)


def reason_with_unsealed(reason: str, days: Sequence[DaySeal]) -> str:
    """The reason of a run, and which of its days were published before they were sealed."""
    unsealed = [f"{seal_text(day)} {day.seal}" for day in days if not day.seal.is_final]
    if not unsealed:
        return reason
    more = f" and {len(unsealed) - _SHOWN} more" if len(unsealed) > _SHOWN else ""
    said = f"unsealed: {', '.join(unsealed[:_SHOWN])}{more}"
    return f"{reason}; {said}" if reason else said


def seal_text(day: DaySeal) -> str:
    """Such as `2024-03-01`."""
    return instant_text(day.day_ms)[:10]


def _name(definition: Definition) -> str:
    """Of the summary: another way to read the source is another one."""
    digest = hashlib.sha256(json.dumps(definition.read_by, sort_keys=True).encode()).hexdigest()[:12]
    return f"delivered-{definition.name}-{digest}"


def _delivered(files: Sequence[InputFile], definition: Definition, name: str, home: Home) -> Iterator[Delivery]:
    """What each file delivered; a file is read once, and what was found is kept for all of them together."""
    place, what = home.summary(name), f"what the input files of {definition.name} have delivered"
    known = (load_summary(place, what) or {}).get("files", {})
    found = {_identity(file): known.get(_identity(file)) for file in files}
    is_new = False
    for file in files:
        if found[_identity(file)] is None:
            found[_identity(file)] = _counted(file, definition)
            is_new |= found[_identity(file)] is not None
    if is_new:
        write_summary(place, {"files": {identity: each for identity, each in found.items() if each is not None}})
    for each in found.values():
        for partition, day_ms, events, last_arrival_ms in each or ():
            yield Delivery(partition, day_ms, events, last_arrival_ms)


def _identity(file: InputFile) -> str:
    return f"{file.size_bytes}/{file.modified_ms}/{file.path}"


def _counted(file: InputFile, definition: Definition) -> list[list[Any]] | None:
    """Read a file; None where it is damaged: that is no evidence, and only runs that read it are refused."""
    from backstream.source.reader import UnreadableError

    try:
        return count_deliveries(Path(file.path), definition)
    except UnreadableError as error:
        log.warning("%s", error)
        return None
