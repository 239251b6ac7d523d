"""Check whether a range can be run: the rules of `runs.allowed_ranges`, applied to source files and lake."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.definition.prepared import list_single_sources
from backstream.errors import BackstreamError, RangeError
from backstream.eventtime.instants import SECOND_MS
from backstream.eventtime.intervals import ALL_TIMES, Interval
from backstream.eventtime.windows import Session
from backstream.runs.allowed_ranges import SourceSpan, require_range_in_source, round_to_days
from backstream.runs.dataset_state import DatasetState
from backstream.runs.home import Home
from backstream.runs.plan import InputFile, Mode
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers


def require_possible_range(definition_path: Path, interval: Interval, home: Home) -> None:
    """Check a range before a run of it is started; the task `plan` applies the same rule.

    The files of the source are read only if the range is not possible according to the last dataset state.

    Raises:
        SpecError: when the definition is wrong.
        RangeError: when the range can have no event.
        PlanError: when the source cannot be read.
    """
    written, place = load_definition(definition_path), str(definition_path)
    definition = resolve_paths(written, home)
    if any(single.source.partition_filter for single in list_single_sources(written)):
        require_range(definition, interval, None, place, home)  # the folders of the range may be unopened yet
        return
    if span := _load_event_span(definition, home):
        with suppress(RangeError):
            require_range(definition, interval, span, place, home)
            return
    source = load_footers(list_source_files(definition.source, place), definition, home)
    allowed = definition.valid_times
    # A damaged file may hold any event: the planner knows more about it and reports what to do.
    events = None if source.damaged else find_event_span(source.inputs, allowed)
    require_range(definition, interval, events, place, home)


def is_possible_range(definition_path: Path, interval: Interval, home: Home) -> bool:
    """Return whether a range can have events, which planning requires."""
    try:
        require_possible_range(definition_path, interval, home)
    except RangeError:
        return False
    return True


def find_possible_days(definition: Definition) -> Interval:
    """Return the UTC days that may be run now, independent of the events."""
    allowed = definition.valid_times
    return SourceSpan(definition.name, "", allowed).days(int(time.time() * SECOND_MS))


def require_range(
    definition: Definition,
    interval: Interval,
    events: Interval | None,
    where: str,
    home: Home,
    notes: tuple[str, ...] = (),
) -> None:
    """Check a range; a range without events is allowed if it has published rows, which the run then removes.

    Raises:
        RangeError: when the range can have no event.
    """
    allowed = definition.valid_times
    source = SourceSpan(definition.name, where, allowed, events, notes, definition.backfill.chunk)
    now_ms = int(time.time() * SECOND_MS)
    try:
        require_range_in_source(interval, read_interval(interval, definition), source, now_ms)
    except RangeError:
        days = source.days(now_ms)
        is_allowed = days.start_ms <= interval.start_ms and interval.end_ms <= days.end_ms
        without_events = interval.without([round_to_days(events)] if events else [])
        from backstream.lake.scans import count_rows

        if not is_allowed or not any(count_rows(home, definition.name, part) for part in without_events):
            raise


def find_event_span(
    inputs: Iterable[InputFile], allowed: Interval, indexed: Mapping[str, Interval] | None = None
) -> Interval | None:
    """Return the interval from the first event to just after the last, empty without events.

    It is None if the event times of a file are unknown, or if no record has one.

    Args:
        inputs: the files, as their footers describe them.
        allowed: the valid event times; files outside it are left out.
        indexed: the span of each file in the arrival index, by path.
    """
    spans, has_unreadable = list[Interval](), False
    for file in inputs:
        span = (indexed or {}).get(file.path) or _footer_span(file)
        if file.is_unreadable:
            has_unreadable = True
        elif file.rows and span is None:
            return None
        elif file.rows and span and allowed.overlaps(span):
            spans.append(span)
    if not spans:
        return None if has_unreadable else Interval(allowed.start_ms, allowed.start_ms)
    first_ms, end_ms = min(span.start_ms for span in spans), max(span.end_ms for span in spans)
    return Interval(max(first_ms, allowed.start_ms), min(end_ms, allowed.end_ms))


def read_interval(piece: Interval, definition: Definition) -> Interval:
    """Return the event times that a chunk reads: from its start to the end of its last window.

    If the windows leave a hole after that window, the chunk reads the hole, too. The reach of sessions is at least
    one gap on both sides; the job reads further until its sessions are complete.
    """
    window = definition.window.spec()
    if isinstance(window, Session):
        return Interval(piece.start_ms - window.gap_ms, piece.end_ms + window.gap_ms)
    unit_ms = definition.unit_ms
    last_start_ms = piece.end_ms - 1 - (piece.end_ms - 1 - window.offset_ms) % unit_ms
    return Interval(piece.start_ms, last_start_ms + max(window.size_ms, unit_ms))


def needed_times(interval: Interval, definition: Definition, mode: Mode) -> Interval:
    """Return the instants that a run of a range needs from the source; `source.partition_filter` uses them.

    The watermarks of a replay depend on all records, sessions have any length, and state has any reach.
    """
    is_bounded = mode is Mode.RECOMPUTE and not isinstance(definition.window.spec(), Session)
    if not is_bounded or definition.process is not None:
        return ALL_TIMES
    needed = definition.source.identity.reach(read_interval(interval, definition))
    zone = definition.window.spec().zone
    return zone.instant_span(needed) if zone else needed


def _footer_span(file: InputFile) -> Interval | None:
    if file.min_event_ms is None or file.max_event_ms is None:
        return None
    return Interval(file.min_event_ms, file.max_event_ms + 1)


def _load_event_span(definition: Definition, home: Home) -> Interval | None:
    """Return the days of events in the last dataset state; None without a readable one."""
    try:
        return DatasetState.read(home.dataset_state(definition.name)).span
    except (BackstreamError, KeyError, TypeError):
        return None
