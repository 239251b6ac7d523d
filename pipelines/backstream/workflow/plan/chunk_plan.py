"""Cut the range of a run into chunks, each with its input files and its expected number of events."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np

from backstream.errors import PlanError
from backstream.eventtime.instants import MAX_MS, MIN_MS, duration_text
from backstream.eventtime.intervals import Interval
from backstream.runs.plan import Chunk, InputFile
from backstream.source.arrival_index import ArrivalIndex
from backstream.source.time_columns import Longs
from backstream.workflow.plan.allowed_ranges import read_interval
from backstream.workflow.plan.plan_request import RunScope


def require_few_chunks(scope: RunScope) -> None:
    """Check, before any chunk is made, that the range has at most `backfill.max_chunks` chunks.

    Raises:
        PlanError: with the number of chunks and the settings to change.
    """
    length_ms, backfill = scope.interval.end_ms - scope.interval.start_ms, scope.definition.backfill
    count = -(-length_ms // backfill.chunk)
    if count > backfill.max_chunks:
        enough_ms = -(-length_ms // backfill.max_chunks // backfill.chunk) * backfill.chunk
        msg = (
            f"cannot plan {scope.interval}: it has {count:,} chunks of {duration_text(backfill.chunk)},"
            f" backfill.max_chunks is {backfill.max_chunks:,} ({scope.place})\n\n"
            f"hint: request a shorter range, set backfill.chunk to {duration_text(enough_ms)} or more, or raise"
            " backfill.max_chunks"
        )
        raise PlanError(msg, "chunk")


def cut_chunks(scope: RunScope, inputs: Sequence[InputFile], index: ArrivalIndex) -> tuple[Chunk, ...]:
    """Cut the range into chunks, each with its input files and its expected number of events."""
    intervals = list(scope.interval.cut(scope.definition.backfill.chunk))
    width = max(4, len(str(len(intervals))))
    # The index has no times of unreadable records, so the footers decide which chunks read their files.
    by_footer = {file.path for file in index.list_unindexed(inputs)} | index.paths_without_times()
    bounds, positions = _FileBounds.from_inputs(inputs, by_footer), {file.path: n for n, file in enumerate(inputs)}

    def chunk(number: int, interval: Interval) -> Chunk:
        reach = read_interval(interval, scope.definition)
        counted = {path: events for path, events in index.events_in(reach).items() if path not in by_footer}
        indexed = [positions[path] for path in counted if path in positions]
        files = tuple(sorted([*bounds.find_positions(reach), *indexed]))
        expected = sum(
            _estimate_events(file, interval) if file.path in by_footer else counted[file.path]
            for file in (inputs[position] for position in files)
        )
        return Chunk(f"{number:0{width}}", interval.start_ms, interval.end_ms, reach.end_ms, files, expected)

    return tuple(chunk(number, interval) for number, interval in enumerate(intervals))


class _FileBounds(NamedTuple):
    """The event times of files by their footers, as arrays: thousands of chunks look up thousands of files."""

    positions: Longs
    first_ms: Longs
    last_ms: Longs

    @classmethod
    def from_inputs(cls, inputs: Sequence[InputFile], paths: Container[str]) -> _FileBounds:
        """Return the bounds of the files with these paths; a file without bounds may hold any event."""
        files = [(position, file) for position, file in enumerate(inputs) if file.rows and file.path in paths]
        is_bounded = [file.min_event_ms is not None and file.max_event_ms is not None for _, file in files]
        first = [
            file.min_event_ms if known else MIN_MS for (_, file), known in zip(files, is_bounded, strict=True)
        ]
        last = [file.max_event_ms if known else MAX_MS for (_, file), known in zip(files, is_bounded, strict=True)]
        positions = [position for position, _ in files]
        return cls(*(np.array(values, dtype=np.int64) for values in (positions, first, last)))

    def find_positions(self, interval: Interval) -> list[int]:
        """Return the positions of the files that may hold an event of the interval."""
        is_near = (self.first_ms < interval.end_ms) & (self.last_ms >= interval.start_ms)
        return [int(position) for position in self.positions[is_near]]


def _estimate_events(file: InputFile, interval: Interval) -> int:
    """Return the number of a file's rows in an interval, as if they were spread evenly over its event times."""
    if file.min_event_ms is None or file.max_event_ms is None:
        return file.rows
    span_ms = file.max_event_ms + 1 - file.min_event_ms
    overlap_ms = min(interval.end_ms, file.max_event_ms + 1) - max(interval.start_ms, file.min_event_ms)
    return file.rows * max(0, overlap_ms) // span_ms
