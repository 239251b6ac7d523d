"""Run conformance cases on the reference engine: plain Python, record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from backstream.conformance.cases import Case, EngineResult, RecordedFiring
from backstream.errors import BackstreamError
from backstream.eventtime.timers import run_process
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.watermarks import Watermarks
from backstream.eventtime.window_operator import Pane, fire_windows


def run_cases(cases: Sequence[Case]) -> list[EngineResult | BackstreamError]:
    """Return the results of the reference engine for conformance cases."""
    return [_run_or_error(case) for case in cases]


def _run_or_error(case: Case) -> EngineResult | BackstreamError:
    try:
        return _run(case)
    except BackstreamError as error:
        return error


def _run(case: Case) -> EngineResult:
    watermarks = compute_watermarks(case.records, case.emission, case.clock, case.partitions)
    result = fire_windows(case.records, watermarks, case.window, case.allowed_lateness_ms)
    return EngineResult(
        firings=[_firing(pane) for pane in result.panes],
        late=result.dropped,
        record_wm=watermarks.in_force_ms,
        watermarks=[(event.watermark_ms, event.after) for event in watermarks.events],
        is_final=watermarks.is_final,
        timers=_fire_timers(case, watermarks),
    )


def _fire_timers(case: Case, watermarks: Watermarks) -> list[tuple[int, int, str, int, int]] | None:
    if case.timers is None:
        return None
    # The process function counts repetitions, so each key gets its own.
    firings = run_process(case.records, watermarks, partial(replace, case.timers)).firings
    return sorted(
        (timer.by, timer.timestamp_ms, str(timer.key), timer.watermark_ms, timer.after) for timer in firings
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
