"""The reference engine: plain Python, record by record. Slow, obvious, and the judge of the other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from backstream.conformance.cases import Case, EngineResult, RecordedFiring
from backstream.errors import BackstreamError
from backstream.eventtime.timers import timer_firings
from backstream.eventtime.watermarks import Watermarks, compute_watermarks
from backstream.eventtime.window_operator import Pane, fire_windows


def run_case(cases: Sequence[Case]) -> list[EngineResult | BackstreamError]:
    """What the reference makes of conformance cases."""
    return [_played(case) for case in cases]


def _played(case: Case) -> EngineResult | BackstreamError:
    try:
        return _outcome(case)
    except BackstreamError as error:
        return error


def _outcome(case: Case) -> EngineResult:
    heard = compute_watermarks(case.records, case.emission, case.clock, case.partitions)
    result = fire_windows(case.records, heard, case.window, case.allowed_lateness_ms)
    return EngineResult(
        firings=[_firing(pane) for pane in result.panes],
        late=result.dropped,
        record_wm=heard.in_force_ms,
        watermarks=[(event.watermark_ms, event.after) for event in heard.events],
        is_final=heard.is_final,
        timers=_timers(case, heard),
    )


def _timers(case: Case, heard: Watermarks) -> list[tuple[int, int, str, int, int]] | None:
    if case.timers is None:
        return None
    fired = timer_firings(case.records, heard, partial(replace, case.timers))  # anew per key: it counts repeats
    return sorted((each.by, each.timestamp_ms, str(each.key), each.watermark_ms, each.after) for each in fired)


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
