"""Recompute windows of keys with the reference engine: fates, firings, and the row to publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS, MAX_MS, epoch_us
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate, Record
from backstream.eventtime.watermarks import WatermarkEvent, Watermarks
from backstream.eventtime.window_operator import Pane, PaneTiming, WindowResults, fire_windows
from backstream.eventtime.windows import Session, TimeWindow, WindowSpec
from backstream.native.raw_input import RawInput, RawRecord, Target
from backstream.runs.plan import Mode
from backstream.workflow.recomputation.arrival_history import ArrivalHistory, OwnWatermarks
from backstream.workflow.recomputation.values import aggregate_values

_EXPIRED = "expired"
"""The fate of a record that this window no longer accepted, although a later window did."""
_UNDECIDED = {
    Fate.ON_TIME.value: Fate.UNDECIDED_COUNTED.value,
    Fate.DROPPED.value: Fate.UNDECIDED_DROPPED.value,
    _EXPIRED: Fate.UNDECIDED_DROPPED.value,
}
"""The fate in a window by that of a record in the replay, if lost logs would show whether it was late there."""


@dataclass(frozen=True, slots=True)
class ExplainedRecord:
    """A record of a window with its fate there; `watermark_ms` is None in a recompute."""

    record: RawRecord
    watermark_ms: int | None
    fate: str


@dataclass(frozen=True, slots=True)
class Firing:
    """A firing of a window; `at_ms` is the time of the source's clock, None at the end of the input."""

    timing: PaneTiming
    at_ms: int | None
    watermark_ms: int
    record_count: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecomputedWindow:
    """A window of a key by the reference engine.

    `values` are those of the row to publish, with `record_count`; None: there is none. `watermarks` are those of
    the stream, and `source` describes how they were computed; empty in a recompute.
    """

    target: Target
    records: Sequence[ExplainedRecord]
    firings: Sequence[Firing]
    record_count: int
    values: Mapping[str, Any] | None
    fires_at_ms: int | None = None
    is_removed_at_ms: int | None = None
    watermarks: Sequence[WatermarkEvent] = ()
    source: str = ""

    @property
    def files(self) -> list[str]:
        """The files of the records, sorted."""
        return sorted({each.record.file for each in self.records})


def recompute_windows(
    raw: RawInput, targets: Sequence[Target], *, is_sample: bool = False
) -> list[RecomputedWindow]:
    """Return windows of keys, computed record by record from the raw input of a plan.

    Args:
        raw: the input.
        targets: the windows and keys.
        is_sample: whether only values and fates are needed, independent of the arrival index. The times of firings
            are then not exact.

    Raises:
        PlanError: when an input file is not as planned, or only Spark can compute the watermarks.
    """
    if not targets:
        return []
    groups = _load_groups(raw, targets)
    if raw.plan.mode is Mode.RECOMPUTE:
        return [_recompute(raw, target, records, None) for target, records in zip(targets, groups, strict=True)]
    if raw.definition.marker is not None:
        msg = f"cannot recompute {raw.definition.name}: only Spark can evaluate watermark.marker"
        raise PlanError(msg)
    window, lateness_ms = raw.definition.window.spec(), raw.definition.lateness.allowed
    triggers_ms = set() if is_sample else {window.trigger_ms(target.window.end_ms) for target in targets}
    targets_ms = triggers_ms | {trigger_ms + lateness_ms for trigger_ms in triggers_ms}
    together = sorted({record: None for records in groups for record in map(_Placed, records)})
    numbers = {placed: number for number, placed in enumerate(together)}
    history = ArrivalHistory(raw, len(together) if is_sample else None)
    stream = history.watermarks_at([placed.record for placed in together], targets_ms)
    return [
        _recompute(raw, target, records, _Replay(stream, [numbers[_Placed(record)] for record in records]))
        for target, records in zip(targets, groups, strict=True)
    ]


def find_session_targets(raw: RawInput, seeds: Sequence[tuple[tuple[Any, ...], int]]) -> set[Target]:
    """Return the sessions of all records, given the key and the event time of one record of each."""
    window, found = raw.definition.window_spec, set[Target]()
    if not isinstance(window, Session) or not seeds:
        return found
    alone = [Target(TimeWindow(at_ms, at_ms + window.gap_ms), key) for key, at_ms in seeds]
    for (key, _), records in zip(seeds, _load_groups(raw, alone), strict=True):
        times_ms = [record.event_ms for record in records if _is_counted(record)]
        if times_ms:
            found.add(Target(TimeWindow(min(times_ms), max(times_ms) + window.gap_ms), key))
    return found


class _Placed:
    """A record that several targets share, compared by its place in arrival order."""

    __slots__ = ("_key", "record")

    def __init__(self, record: RawRecord) -> None:
        self.record = record
        self._key = (*record.place, record.event_ms, record.file, repr(record.values))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Placed) and self._key == other._key

    def __lt__(self, other: _Placed) -> bool:
        return self._key < other._key


@dataclass(frozen=True, slots=True)
class _Replay:
    """The watermarks of a stream, and the numbers of a window's records in it."""

    stream: OwnWatermarks
    numbers: Sequence[int]


def _load_groups(raw: RawInput, targets: Sequence[Target]) -> list[list[RawRecord]]:
    """Return the records of each target; for a session, all records that may touch it."""
    window = raw.definition.window_spec
    if not isinstance(window, Session):
        return raw.load_records([(Interval(*target.window), target.key) for target in targets])
    reach_ms = max(2 * window.gap_ms, DAY_MS)
    while True:
        spans = [
            Interval(target.window.start_ms - reach_ms, target.window.end_ms + reach_ms) for target in targets
        ]
        groups = raw.load_records([(span, target.key) for span, target in zip(spans, targets, strict=True)])
        islands = [_island(raw, records, target, window) for records, target in zip(groups, targets, strict=True)]
        if all(
            not island
            or (
                span.start_ms + window.gap_ms < island[0].event_ms
                and island[-1].event_ms < span.end_ms - window.gap_ms
            )
            for island, span in zip(islands, spans, strict=True)
        ):
            return [sorted(island, key=lambda record: record.place) for island in islands]
        reach_ms *= 4


def _island(raw: RawInput, records: Sequence[RawRecord], target: Target, window: Session) -> list[RawRecord]:
    """Return the records, ordered by event time, that are connected to a session by gaps at most."""
    islands: list[list[RawRecord]] = []
    kept = ((_instant(raw, record, window), record) for record in records if not record.is_filtered)
    placed = sorted(kept, key=itemgetter(0))
    for number, (at, record) in enumerate(placed):
        if number and at <= placed[number - 1][0] + window.gap:
            islands[-1].append(record)
        else:
            islands.append([record])
    span = Interval(*target.window)
    return next(
        (found for found in islands if any(span.start_ms <= each.event_ms < span.end_ms for each in found)), []
    )


def _instant(raw: RawInput, record: RawRecord, window: WindowSpec) -> int:
    """Return the event time of a record in the instants of the windows."""
    if not isinstance(window, Session) or window.per_ms == 1:
        return record.event_ms
    return epoch_us(record.values[raw.definition.timed_source.event_time])


def _in_ms(window: TimeWindow, per_ms: int) -> TimeWindow:
    return TimeWindow(window.start_ms // per_ms, window.end_ms // per_ms)


def _recompute(
    raw: RawInput, target: Target, records: Sequence[RawRecord], replay: _Replay | None
) -> RecomputedWindow:
    window, lateness_ms = raw.definition.window_spec, raw.definition.lateness.allowed
    per_ms = window.per_ms if isinstance(window, Session) else 1
    counted = [number for number, record in enumerate(records) if _is_counted(record)]
    own = [
        Record(records[number].arrival_ms, 0, target.key, _instant(raw, records[number], window))
        for number in counted
    ]
    if replay is None:
        lateness_ms = 0
        watermarks = Watermarks([WatermarkEvent(MAX_MS, len(own) - 1, 0)])
    else:
        thresholds_ms = {at // per_ms for at in _thresholds(own, window, lateness_ms)}
        watermarks = replay.stream.restrict([replay.numbers[number] for number in counted], thresholds_ms)
        for number, event in enumerate(watermarks.events):
            watermarks.events[number] = replace(event, watermark_ms=(event.watermark_ms + 1) * per_ms - 1)
    results = fire_windows(own, watermarks, window, lateness_ms)
    panes = [pane for pane in results.panes if _in_ms(pane.window, per_ms) == target.window]
    rows = [records[number].values for number in counted]

    def values(numbers: Sequence[int]) -> dict[str, Any]:
        return aggregate_values(raw.aggregates, raw.plan.columns, [rows[number] for number in numbers])

    published = _published_records(raw, target, own, panes)
    firings = [
        Firing(
            pane.timing,
            *_firing_place(pane, watermarks, own, per_ms),
            len(pane.records),
            values(pane.records),
        )
        for pane in panes
    ]
    fates = _fates(results, panes, target, counted, records)
    given = raw.definition.emission.strategy.given if replay else None
    for number, record in enumerate(records):
        if given and given.is_undecided(record.arrival_ms, target.window.end_ms):
            fates[number] = _UNDECIDED.get(fates[number], fates[number])
    met_ms = (
        [None] * len(records)
        if replay is None
        else [replay.stream.in_force_ms[number] for number in replay.numbers]
    )
    trigger_ms = window.trigger_ms(target.window.end_ms)
    reaching = (
        [None, None]
        if replay is None
        else [
            None if (at_ms := replay.stream.reaching_ms(limit)) == MAX_MS else at_ms
            for limit in (trigger_ms, trigger_ms + lateness_ms)
        ]
    )
    return RecomputedWindow(
        target,
        [ExplainedRecord(*each) for each in zip(records, met_ms, fates, strict=True)],
        firings,
        len(published),
        values(published) if published else None,
        fires_at_ms=reaching[0],
        is_removed_at_ms=reaching[1],
        watermarks=replay.stream.events if replay else (),
        source=replay.stream.source if replay else "",
    )


def _is_counted(record: RawRecord) -> bool:
    """Return whether windows get a record."""
    return not (record.is_duplicate or record.is_filtered)


def _thresholds(records: Sequence[Record], window: Any, lateness_ms: int) -> set[int]:
    """Return all event times with which the operator compares a watermark."""
    ends_ms = {each.end_ms for record in records for each in window.assign(record.event_time_ms)}
    triggers_ms = {window.trigger_ms(end_ms) for end_ms in ends_ms}
    alone_ms = {window.trigger_ms(record.event_time_ms + 1) for record in records}
    return triggers_ms | {trigger_ms + lateness_ms for trigger_ms in triggers_ms | alone_ms}


def _published_records(
    raw: RawInput, target: Target, records: Sequence[Record], panes: Sequence[Pane]
) -> Sequence[int]:
    """Return the numbers of the records of the pane that is published; none: the window has no row."""
    which = "final" if raw.plan.mode is Mode.RECOMPUTE else raw.definition.backfill.publish
    if which == "first":
        return panes[0].records if panes and panes[0].timing is PaneTiming.ON_TIME else ()
    if which == "live":
        return panes[-1].records if panes else ()
    times = [record.event_time_ms for record in records]
    window = raw.definition.window_spec
    if isinstance(window, Session):
        whole = TimeWindow(min(times, default=0), max(times, default=0) + window.gap)
        is_whole = bool(times) and target.window == _in_ms(whole, window.per_ms)
        return range(len(records)) if is_whole else ()
    return range(len(records))


def _firing_place(
    pane: Pane, watermarks: Watermarks, records: Sequence[Record], per_ms: int
) -> tuple[int | None, int]:
    """Return the time of a firing, None at the end of the input, and the watermark then, in ms."""
    if pane.timing is PaneTiming.LATE:
        # The watermarks of the pane's operator are only those that cross a threshold.
        met_ms = watermarks.in_force_ms[pane.by] if watermarks.in_force_ms else pane.watermark_ms
        return records[pane.by].arrival_time_ms, met_ms
    event = watermarks.events[pane.by]
    return (None if event.watermark_ms == MAX_MS else event.at_ms), event.watermark_ms // per_ms


def _fates(
    results: WindowResults,
    panes: Sequence[Pane],
    target: Target,
    counted: Sequence[int],
    records: Sequence[RawRecord],
) -> list[str]:
    """Return the fate of each record in the window: a record may be late here and on time in a later window."""
    fates = [(Fate.DUPLICATE if record.is_duplicate else Fate.FILTERED).value for record in records]
    late = {pane.by for pane in panes if pane.timing is PaneTiming.LATE}
    expired = {number for number, window in results.expired if window == target.window}
    for own, number in enumerate(counted):
        fate = results.fates[own].value
        if fate in (Fate.ON_TIME, Fate.LATE):
            fate = _EXPIRED if own in expired else Fate.LATE.value if own in late else Fate.ON_TIME.value
        fates[number] = fate
    return fates
