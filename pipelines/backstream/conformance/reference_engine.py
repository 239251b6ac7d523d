"""Run conformance cases on the reference engine: plain Python, record by record, in one part or in several."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from backstream.conformance.cases import Case, Pairs, UnsupportedCaseError, list_late_records, window_of_firing
from backstream.conformance.comparison import AnyCase
from backstream.conformance.join_results import JoinReplay
from backstream.conformance.recorded_jobs import JobCase, JobRows
from backstream.conformance.script_cases import ScriptCase
from backstream.conformance.top_rows import Members, TopOfCase, TopRow
from backstream.errors import BackstreamError
from backstream.eventtime.late_counters import count_late_partials
from backstream.eventtime.stream_replay import (
    ReplayResults,
    ReplayState,
    StreamSettings,
    replay_to_cut,
    replay_to_end,
)
from backstream.eventtime.window_operator import Pane
from backstream.eventtime.windows import Session, TimeWindow, WindowSpec


@dataclass(frozen=True, slots=True, order=True)
class RecordedFiring:
    """One firing, comparable; Flink defines no order among firings with the same `by` and kind."""

    by: int
    kind: str
    start: int
    end: int
    key: str
    records: tuple[int, ...]
    wm: int


@dataclass(slots=True)
class StreamResult:
    """All steps of a stream, in their order; `timers` is None without a process function."""

    firings: list[RecordedFiring]
    late: list[int]
    expired: list[tuple[int, TimeWindow]]
    record_wm: list[int]
    watermarks: list[tuple[int, int]]
    is_final: bool
    timers: list[tuple[int, int, str, int, int]] | None = None

    def pairs(self, case: Case, flink: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Flink: every watermark, firing, late record, and timer, in its order."""
        watermarks: Pairs = {
            "watermarks": ([(event["wm"], event["after"]) for event in flink["watermarks"]], self.watermarks),
            "watermark in force": (flink["record_wm"], self.record_wm),
        }
        if case.top:
            return {**watermarks, **self._ranked_pairs(case, case.top, flink)}
        expected = [_parse_firing(firing) for firing in flink["firings"]]
        return {
            **watermarks,
            "order of firings": (_order(expected, case.window), _order(self.firings, case.window)),
            "firings": (sorted(expected), sorted(self.firings)),
            "late records": (list_late_records(flink), sorted(self.late)),
            **self._counter_pairs(case, flink),
            # A recording of Flink SQL always ends with +inf.
            "final watermark": (flink.get("final_watermark", True), self.is_final),
            "timers": (sorted(_parse_timer(timer) for timer in flink.get("timers", [])), self.timers),
        }

    def _counter_pairs(self, case: Case, flink: Mapping[str, Any]) -> Pairs:
        if "num_partials_dropped" not in flink or isinstance(case.window, Session):
            return {"number of late records": (flink.get("num_late_dropped", len(self.late)), len(self.late))}
        late = [(case.records[number], self.record_wm[number]) for number in self.late]
        partials = count_late_partials(
            [(record.key, record.event_time_ms, watermark_ms) for record, watermark_ms in late], case.window
        )
        return {"number of late rows": (flink["num_partials_dropped"], partials)}

    def _ranked_pairs(self, case: Case, top: TopOfCase, flink: Mapping[str, Any]) -> Pairs:
        """Return the rows of a top-N; before one of records, Flink drops a record from each window by itself."""
        windows = [Members(each.start, each.end, each.records, each.by) for each in self.firings]
        expected = sorted(map(TopRow.from_recording, flink["rows"]))
        rows: Pairs = {"rows": (expected, top.rows(case.records, windows))}
        if not top.are_records:
            return rows
        late = [*self.expired, *_list_dropped_rows(case, self.late)]
        return {
            **rows,
            "late records": (sorted(flink["late"]), sorted({number for number, _ in late})),
            "number of dropped rows": (flink["num_dropped"], len(late)),
        }


def _list_dropped_rows(case: Case, dropped: Sequence[int]) -> list[tuple[int, TimeWindow]]:
    """Return each window of records that no window has accepted."""
    return [
        (number, window) for number in dropped for window in case.window.assign(case.records[number].event_time_ms)
    ]


_AnyResult = StreamResult | JoinReplay | JobRows


def run_cases(cases: Sequence[AnyCase], cuts: int = 0) -> list[_AnyResult | BackstreamError]:
    """Return the results of the reference engine for conformance cases.

    Args:
        cases: the cases.
        cuts: the number of cuts of each case of Flink into equal parts; the state goes through JSON at each cut.
    """
    return [_run_or_error(case, cuts) for case in cases]


def _run_or_error(case: AnyCase, cuts: int) -> _AnyResult | BackstreamError:
    if isinstance(case, JobCase):
        return JobRows(case.list_windows())
    if isinstance(case, ScriptCase):
        return UnsupportedCaseError("scripts of Flink SQL, which need --engine native or spark")
    try:
        if case.join:
            return JoinReplay.from_case(case, case.join)
        return _result(list(_replay_parts(case, cuts)))
    except BackstreamError as error:
        return error


def _settings(case: Case) -> StreamSettings:
    # The process function counts repetitions, so each key gets its own.
    new_function = None if case.timers is None else partial(replace, case.timers)
    return StreamSettings(
        case.emission, case.clock, case.partitions, case.window, case.allowed_lateness_ms, new_function
    )


def _replay_parts(case: Case, cuts: int) -> Iterator[ReplayResults]:
    """Yield the results of each part; every second cut is at the arrival of the next record, after its tick."""
    state, begin, settings = None, 0, _settings(case)
    for number in range(1, cuts + 1):
        end = len(case.records) * number // (cuts + 1)
        rest = case.records[end:]
        at_ms = rest[0].arrival_time_ms if rest and number % 2 else None
        continuing = {record.source_partition for record in rest}
        part, state = replay_to_cut(case.records[begin:end], settings, state, at_ms=at_ms, continuing=continuing)
        state = ReplayState.from_json(json.loads(json.dumps(state.to_json())))
        yield part
        begin = end
    yield replay_to_end(case.records[begin:], settings, state)


def _result(parts: Sequence[ReplayResults]) -> StreamResult:
    processes = [part.process for part in parts if part.process]
    timers = sorted(
        (timer.by, timer.timestamp_ms, str(timer.key), timer.watermark_ms, timer.after)
        for process in processes
        for timer in process.firings
    )
    return StreamResult(
        firings=[_firing(pane) for part in parts for pane in part.windows.panes],
        late=[number for part in parts for number in part.windows.dropped],
        expired=[each for part in parts for each in part.windows.expired],
        record_wm=[value for part in parts for value in part.watermarks.in_force_ms],
        watermarks=[(event.watermark_ms, event.after) for part in parts for event in part.watermarks.events],
        is_final=parts[-1].watermarks.is_final,
        timers=timers if processes else None,
    )


def _firing(pane: Pane) -> RecordedFiring:
    return RecordedFiring(
        pane.by,
        pane.timing.value,
        pane.window.start_ms,
        pane.window.end_ms,
        str(pane.key),
        pane.records,
        pane.watermark_ms,
    )


def _parse_timer(timer: Mapping[str, Any]) -> tuple[int, int, str, int, int]:
    return timer["by"], timer["ts"], timer["key"], timer["wm"], timer["after"]


def _parse_firing(firing: Mapping[str, Any]) -> RecordedFiring:
    records = tuple(sorted(firing["records"]))
    bounds = window_of_firing(firing)
    return RecordedFiring(firing["by"], firing["kind"], *bounds, firing["key"], records, firing["wm"])


def _order(firings: Sequence[RecordedFiring], window: WindowSpec) -> list[tuple[str, int, int]]:
    """Return the sort keys that Flink defines: the watermark or record, and then what fires the window."""
    return [(firing.kind, firing.by, window.trigger_ms(firing.end)) for firing in firings]
