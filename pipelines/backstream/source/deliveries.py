"""Derive the seals of days from the last arrivals in input files.

Files are read by `delivery_counts`, which loads PyArrow; a command that finds all counts in a summary does not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from backstream.definition.model import Definition
from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.seals import DaySeal, Delivery, SealRule, seal_days
from backstream.runs.file_summaries import load_summary, write_summary
from backstream.runs.home import Home
from backstream.runs.plan import InputFile
from backstream.text import text_logger

log = text_logger(__name__)
_MAX_DAYS = 10
"""Limit of days that a message lists."""


def find_day_seals(
    definition: Definition, inputs: Sequence[InputFile], interval: Interval, home: Home
) -> list[DaySeal]:
    """Return the seal of each day of an interval.

    The list is empty without `backfill.max_arrival_delay` or recorded arrival times.

    Raises:
        PlanError: when only Spark can evaluate the event or arrival times.
    """
    horizon_ms, quality = definition.backfill.max_arrival_delay, definition.quality
    if horizon_ms is None or definition.source.arrival_time is None:
        return []
    partitions = quality.named_partitions or None
    rule = SealRule(
        horizon_ms,
        partitions,
        definition.watermark.idle_timeout,
        definition.idle_timeouts,
        definition.window.spec().zone,
    )
    files = [file for file in inputs if file.rows]
    deliveries = _load_deliveries(files, definition, home)
    return seal_days(range(interval.start_ms, interval.end_ms, DAY_MS), deliveries, rule)


def require_sealed_days(definition: Definition, days: Sequence[DaySeal], where: str) -> None:
    """Check that no more events can arrive for days that are published as final.

    Raises:
        PlanError: with ten unsealed days at most, and the reason for each.
    """
    unsealed = [day for day in days if not day.seal.is_final]
    if unsealed:
        more = f"\n  and {len(unsealed) - _MAX_DAYS} more" if len(unsealed) > _MAX_DAYS else ""
        listed = (
            "".join(f"\n  {_seal_text(day)} is {day.seal}: {day.reason}" for day in unsealed[:_MAX_DAYS]) + more
        )
        count = f"{len(unsealed)} of {len(days)} days are" if len(days) > 1 else "the day is"
        msg = (
            f"cannot publish {definition.name} as final: {count} not sealed ({where}){listed}\n\n"
            "hint: end the range earlier, or add --allow-unsealed; the report and the ledger then show these days"
        )
        raise PlanError(msg, "allow_unsealed")


def reason_with_unsealed(reason: str, days: Sequence[DaySeal]) -> str:
    """Return the reason of a run, extended by the days that it publishes before they are sealed."""
    unsealed = [f"{_seal_text(day)} {day.seal}" for day in days if not day.seal.is_final]
    if not unsealed:
        return reason
    more = f" and {len(unsealed) - _MAX_DAYS} more" if len(unsealed) > _MAX_DAYS else ""
    note = f"unsealed: {', '.join(unsealed[:_MAX_DAYS])}{more}"
    return f"{reason}; {note}" if reason else note


def _seal_text(day: DaySeal) -> str:
    """Return the date of a day, such as `2024-03-01`."""
    return instant_text(day.day_ms)[:10]


def _load_deliveries(files: Sequence[InputFile], definition: Definition, home: Home) -> Iterator[Delivery]:
    """Return the deliveries of all files; each file is read once, and one summary keeps the counts of all."""
    path = home.summary(_summary_name(definition))
    summary = load_summary(path, f"the deliveries in the input files of {definition.name}") or {}
    cached = summary.get("files", {})
    counts = {_identity(file): cached.get(_identity(file)) for file in files}
    has_new = False
    for file in files:
        identity = _identity(file)
        if counts[identity] is None:
            counts[identity] = _count_unless_damaged(file, definition)
            has_new |= counts[identity] is not None
    if has_new:
        write_summary(path, {"files": {identity: rows for identity, rows in counts.items() if rows is not None}})
    for rows in counts.values():
        for partition, day_ms, events, last_arrival_ms in rows or ():
            yield Delivery(partition, day_ms, events, last_arrival_ms)


def _summary_name(definition: Definition) -> str:
    """Return the name of the summary; it depends on all settings that affect how the source is read."""
    digest = hashlib.sha256(json.dumps(definition.read_by, sort_keys=True).encode()).hexdigest()[:12]
    return f"delivered-{definition.name}-{digest}"


def _identity(file: InputFile) -> str:
    return f"{file.size_bytes}/{file.modified_ms}/{file.path}"


def _count_unless_damaged(file: InputFile, definition: Definition) -> list[list[Any]] | None:
    """Count the records of a file; None if it is damaged.

    A damaged file is no evidence for a seal. It only fails runs that read it.
    """
    from backstream.source.delivery_counts import count_deliveries
    from backstream.source.reader import UnreadableError

    try:
        return count_deliveries(file.path, definition)
    except UnreadableError as error:
        log.warning("%s", error)
        return None
