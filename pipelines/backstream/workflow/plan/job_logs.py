"""Check that the logs of a job of Structured Streaming are those of the records, and decide the range of a run."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS, MAX_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Session
from backstream.runs.plan import Mode
from backstream.source.prepared import PreparedSource
from backstream.structured_streaming.batch_table import BatchTable, RecordsRead, load_batches
from backstream.structured_streaming.late_records import Undecided
from backstream.text import count_of, text_logger
from backstream.workflow.plan.plan_request import RunScope

log = text_logger(__name__)
_SHOWN = 5
"""The number of gaps in a message."""


def require_sound_job(scope: RunScope) -> None:
    """Check that the records agree with the logs, and that these decide which records were late for each window.

    Raises:
        PlanError: with the batch and both values; or when batches are unknown that may have read records while a
            window of the range ended.
    """
    watermark = scope.definition.watermark
    if scope.mode is Mode.RECOMPUTE or not watermark.batches:
        return
    table, read = load_batches(watermark.batches), _sum_records(scope)
    delay_ms = watermark.delay or None  # several watermarks have no delay in a definition
    if contradiction := table.find_contradiction(read, delay_ms):
        msg = f"cannot replay {scope.definition.name}: {contradiction} ({scope.place})"
        raise PlanError(msg, "mode")
    _require_decided(scope, table, read)


def _sum_records(scope: RunScope) -> RecordsRead:
    """Return what the prepared files of all sources have of each batch."""
    records, greatest_ms = defaultdict[int, int](int), dict[int, int]()
    are_whole = True
    for location in scope.definition.source.paths:
        for batch in PreparedSource.from_location(location).batches():
            are_whole &= not batch.skipped
            if batch.job is None:
                continue
            for number, count, last_ms in zip(
                batch.job.batches, batch.job.records, batch.job.greatest_ms, strict=True
            ):
                records[number] += count
                greatest_ms[number] = max(last_ms, greatest_ms.get(number, last_ms))
    numbers = sorted(records)
    raw = scope.raw.source.parts or (scope.raw.source,)
    are_timed = are_whole and not any(source.transform or source.partition_filter for source in raw)
    return RecordsRead(
        np.array(numbers, dtype=np.int64),
        np.array([records[number] for number in numbers], dtype=np.int64),
        np.array([greatest_ms[number] for number in numbers], dtype=np.int64),
        sources=len(raw),
        are_counted=are_timed and not any(source.where for source in raw),
        are_timed=are_timed,
    )


def _require_decided(scope: RunScope, table: BatchTable, read: RecordsRead) -> None:
    """Check that no record is undecided in the range, or that the definition decides; then the user is told."""
    window, undecided = scope.definition.window.spec(), scope.definition.watermark.undecided
    # A session ends a gap after its last record, and can begin long before.
    until_ms = MAX_MS if isinstance(window, Session) else scope.interval.end_ms + window.size_ms
    ends_ms = Interval(scope.interval.start_ms + 1, until_ms)
    found = {number: each for number, each in table.undecided_ends().items() if each.overlaps(ends_ms)}
    if not found:
        return
    records = int(read.records[np.isin(read.number, list(found))].sum())
    reach = f"up to {count_of(records, 'record')} of the source"
    if undecided:
        verb = "they count" if undecided is Undecided.COUNT else "they are dropped"
        log.warning("some logs of the job are lost: %s may have been late, and %s", reach, verb)
        return
    spans = "".join(f"\n  windows that end {_span_text(each)}" for each in [*found.values()][:_SHOWN])
    more = f"\n  and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    first_ms = -(-max(each.end_ms for each in found.values()) // DAY_MS) * DAY_MS
    msg = (
        f"cannot replay {scope.definition.name}: some logs of the job are lost, and with them which records were"
        f" late, {reach} ({scope.place}){spans}{more}\n\n"
        f"hint: begin on {instant_text(first_ms)}, from which day on all is known; or set watermark.undecided to"
        ' "count" or "drop"; `backstream keep-batches` keeps such logs'
    )
    raise PlanError(msg, "mode")


def _span_text(ends_ms: Interval) -> str:
    until = f"until {instant_text(ends_ms.end_ms - 1)}"
    return f"after {instant_text(ends_ms.start_ms - 1)}, {until}" if ends_ms.start_ms > 1 else until
