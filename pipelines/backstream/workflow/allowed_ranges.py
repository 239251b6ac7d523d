"""Whether a range can be asked for: the rule of `core.possible` over what a source's files and the lake tell."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.errors import BackstreamError, RangeError
from backstream.eventtime.instants import SECOND_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Session
from backstream.runs.allowed_ranges import SourceSpan, require_range_in_source, round_to_days
from backstream.runs.dataset_state import DatasetState
from backstream.runs.home import Home
from backstream.runs.plan import InputFile
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers


def require_possible_range(definition_path: Path, interval: Interval, home: Home) -> None:
    """Check a range before a run over it is started; the task `plan` checks it by the same rule.

    The files of the source are looked at only where the range is not possible by the newest look at them.

    Raises:
        SpecError: when the definition is wrong.
        RangeError: when the range can have no event.
        PlanError: when the source cannot be read.
    """
    definition, where = resolve_paths(load_definition(definition_path), home), str(definition_path)
    if seen := _seen(definition, home):
        with suppress(RangeError):
            require_range(definition, interval, seen, where, home)
            return
    source = load_footers(list_source_files(definition.source, where), definition, home)
    allowed = Interval(*definition.source.event_time_range)
    # A damaged file may hold any event: planning knows more of it, and says what is to be done.
    events = None if source.damaged else find_event_span(source.inputs, allowed)
    require_range(definition, interval, events, where, home)


def is_possible_range(definition_path: Path, interval: Interval, home: Home) -> bool:
    """Whether a run over a range would be planned, as far as its events are concerned."""
    try:
        require_possible_range(definition_path, interval, home)
    except RangeError:
        return False
    return True


def find_possible_days(definition: Definition) -> Interval:
    """The whole UTC days that may be asked for now, whatever events there are."""
    allowed = Interval(*definition.source.event_time_range)
    return SourceSpan(definition.name, "", allowed).days(int(time.time() * SECOND_MS))


def require_range(
    definition: Definition, interval: Interval, events: Interval | None, where: str, home: Home
) -> None:
    """Check a range; where nothing is left of its events, but rows of them are published, it is one to be emptied.

    Raises:
        RangeError: when the range can have no event.
    """
    held = SourceSpan(definition.name, where, Interval(*definition.source.event_time_range), events)
    now_ms = int(time.time() * SECOND_MS)
    try:
        require_range_in_source(interval, read_interval(interval, definition), held, now_ms)
    except RangeError:
        days = held.days(now_ms)
        is_allowed = days.start_ms <= interval.start_ms and interval.end_ms <= days.end_ms
        beyond = interval.without([round_to_days(events)] if events else [])
        from backstream.lake.scans import count_rows

        if not is_allowed or not any(count_rows(home, definition.name, part) for part in beyond):
            raise


def find_event_span(
    inputs: Iterable[InputFile], allowed: Interval, indexed: Mapping[str, Interval] | None = None
) -> Interval | None:
    """From the first event to just after the last, empty when there are none; None: some file does not tell.

    Args:
        inputs: the files, as their footers describe them.
        allowed: event times that are none are left out.
        indexed: by path, the span of files of which the arrival index tells.
    """
    found = list[Interval]()
    for file in inputs:
        span = (indexed or {}).get(file.path) or _told(file)
        if file.rows and span is None:
            return None
        if file.rows and span and allowed.overlaps(span):
            found.append(span)
    if not found:
        return Interval(allowed.start_ms, allowed.start_ms)
    first_ms, end_ms = min(each.start_ms for each in found), max(each.end_ms for each in found)
    return Interval(max(first_ms, allowed.start_ms), min(end_ms, allowed.end_ms))


def read_interval(piece: Interval, definition: Definition) -> Interval:
    """The event times that a chunk reads: until its last window ends; a hole after that window is its own too.

    Of sessions only the least is known beforehand, a gap on both sides; the job reads on until they close.
    """
    window = definition.window.spec()
    if isinstance(window, Session):
        return Interval(piece.start_ms - window.gap_ms, piece.end_ms + window.gap_ms)
    unit_ms = definition.unit_ms
    last_start_ms = piece.end_ms - 1 - (piece.end_ms - 1 - window.offset_ms) % unit_ms
    return Interval(piece.start_ms, last_start_ms + max(window.size_ms, unit_ms))


def _told(file: InputFile) -> Interval | None:
    if file.min_event_ms is None or file.max_event_ms is None:
        return None
    return Interval(file.min_event_ms, file.max_event_ms + 1)


def _seen(definition: Definition, home: Home) -> Interval | None:
    """The days of events as the newest look at the source knows them."""
    try:
        return DatasetState.read(home.observation(definition.name)).span
    except (BackstreamError, KeyError, TypeError):
        return None
