"""Run conformance cases on the reference engine: plain Python, record by record, in one part or in several."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from backstream.conformance.cases import Case, EngineResult, RecordedFiring
from backstream.errors import BackstreamError
from backstream.eventtime.stream_replay import (
    ReplayResults,
    ReplayState,
    StreamSettings,
    replay_to_cut,
    replay_to_end,
)
from backstream.eventtime.window_operator import Pane


def run_cases(cases: Sequence[Case]) -> list[EngineResult | BackstreamError]:
    """Return the results of the reference engine for conformance cases."""
    return [_run_or_error(case, _replay) for case in cases]


def run_cut_cases(cases: Sequence[Case], cuts: int) -> list[EngineResult | BackstreamError]:
    """Return the results of cases that are cut into equal parts; the state goes through JSON at each cut."""
    return [_run_or_error(case, partial(_replay_parts, cuts=cuts)) for case in cases]


def _run_or_error(case: Case, replay: Callable[[Case], Iterator[ReplayResults]]) -> EngineResult | BackstreamError:
    try:
        return _result(list(replay(case)))
    except BackstreamError as error:
        return error


def _settings(case: Case) -> StreamSettings:
    # The process function counts repetitions, so each key gets its own.
    new_function = None if case.timers is None else partial(replace, case.timers)
    return StreamSettings(
        case.emission, case.clock, case.partitions, case.window, case.allowed_lateness_ms, new_function
    )


def _replay(case: Case) -> Iterator[ReplayResults]:
    yield replay_to_end(case.records, _settings(case))


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


def _result(parts: Sequence[ReplayResults]) -> EngineResult:
    processes = [part.process for part in parts if part.process]
    timers = sorted(
        (timer.by, timer.timestamp_ms, str(timer.key), timer.watermark_ms, timer.after)
        for process in processes
        for timer in process.firings
    )
    return EngineResult(
        firings=[_firing(pane) for part in parts for pane in part.windows.panes],
        late=[number for part in parts for number in part.windows.dropped],
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
