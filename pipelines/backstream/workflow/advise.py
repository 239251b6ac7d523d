"""Advice on a delay: what history says that each would have cost. Nothing is planned, staged or published."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from pyspark.sql import SparkSession

from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition, TimeKind
from backstream.errors import PlanError, SpecError
from backstream.eventtime.delay_analysis import DelayAdvice, DelayEffect, NormalDistribution, require_share
from backstream.eventtime.instants import HOUR_MS, MINUTE_MS, SECOND_MS, duration_text
from backstream.eventtime.intervals import Interval, backfill_range
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.windows import Session
from backstream.runs.home import Home, write_text
from backstream.runs.plan import InputFile
from backstream.source.columns import resolve_columns
from backstream.source.damaged_files import require_no_damage
from backstream.source.files import find_arrival_bounds, inspect_files, list_source_files
from backstream.spark.delay_analysis import AnalysisRange, measure_delays
from backstream.spark.windows.assignment import FixedWindow, end_step_ms

STAGES = ("watermarks", "critical delays")
"""The two passes over the data, in order."""
SHARES = (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
"""Quantiles of lateness that are shown as delays."""
DEVIATIONS = 2
_BAR = 24


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """A range of a definition's history, found and fit to be asked for a delay."""

    definition: Definition
    recorded: AnalysisRange
    keep: float
    home: Home


def prepare_advice(definition_path: Path, since_ms: int, until_ms: int, keep: float, home: Home) -> AdviceRequest:
    """Check what is asked against the definition and its files; no row is read.

    Args:
        definition_path: the TOML file.
        since_ms: first instant of the range.
        until_ms: first instant after it.
        keep: share of records, above 0 and at most 1, that must not be dropped.
        home: where state lies.

    Raises:
        SpecError: when the definition, the range or the share is wrong, or cannot be advised on.
        PlanError: when the source cannot be read, or does not say when records arrived.
    """
    where = str(definition_path)
    require_share(keep)
    interval = backfill_range(since_ms, until_ms)
    definition = resolve_paths(load_definition(definition_path), home)
    window = _window(definition, where)
    source = inspect_files(list_source_files(definition.source, where), definition.source)
    require_no_damage(source.damaged, where)
    columns = resolve_columns(source.shapes, definition, where)
    clock = _clock(definition, source.inputs, where)
    near = Interval(since_ms, until_ms + max(window.size_ms, end_step_ms(window)))
    near_paths = [file.path for file in source.inputs if file.may_hold(near)]
    if not near_paths:
        raise _nothing(definition, interval)
    recorded = AnalysisRange(definition, window, clock, interval, near, source.inputs, near_paths, columns.types)
    return AdviceRequest(definition, recorded, keep, home)


def _window(definition: Definition, where: str) -> FixedWindow:
    window = definition.window.spec()
    if isinstance(window, Session):
        msg = (
            f"cannot advise on {definition.name}: it has session windows ({where})\n"
            "  which session a record meets depends on the records before it, and so on the delay itself"
        )
        raise SpecError(msg)
    if definition.time is not TimeKind.EVENT:
        msg = (
            f"cannot advise on {definition.name}: its windows are cut by {definition.time.value} time ({where})\n"
            "  only what is cut by event time can come out of order"
        )
        raise SpecError(msg)
    return window


def _clock(definition: Definition, inputs: Sequence[InputFile], where: str) -> SourceClock:
    bounds = find_arrival_bounds(inputs) if definition.source.arrival_time else None
    if bounds is None:
        msg = (
            f"cannot advise on {definition.name}: nothing says when records arrived ({where})\n"
            f"  source.arrival_time is {definition.source.arrival_time!r}\n\n"
            "hint: it must be a timestamp column whose Parquet footers have min and max"
        )
        raise PlanError(msg)
    start_ms = definition.watermark.clock_start
    return SourceClock(bounds[0] if start_ms is None else start_ms, definition.watermark.emit_interval, bounds[1])


def _nothing(definition: Definition, interval: Interval) -> PlanError:
    return PlanError(f"cannot advise on {definition.name}: no record from {interval}")


def recommend_delay(
    spark: SparkSession, asked: AdviceRequest, tell: Callable[[str], None] = lambda _: None
) -> DelayAdvice:
    """What every delay would have done, and which one to take; the home keeps it for the watermark page.

    Args:
        spark: the session.
        asked: what `question` made.
        tell: called with the name of each stage of `STAGES` as it begins.

    Raises:
        PlanError: when the range has no readable record.
    """
    found = measure_delays(spark, asked.recorded, tell)
    interval = asked.recorded.interval
    if not found.overdue.records:
        raise _nothing(asked.definition, interval)
    current_ms = _current_ms(asked.definition)
    parts = (found.overdue, found.dropped, found.behind, found.firings)
    advice = DelayAdvice(asked.definition.name, interval, asked.keep, current_ms, *parts)
    write_text(asked.home.advice(advice.dataset), advice.json_text())
    return advice


def _current_ms(definition: Definition) -> int | None:
    """The definition's own delay, where it means the same as an advised one."""
    section = definition.watermark
    delays_ms = {StrategyKind.BOUNDED: section.delay, StrategyKind.MONOTONOUS: 0}
    return delays_ms.get(section.strategy)


def advice_text(asked: AdviceRequest, advice: DelayAdvice) -> str:
    """The advice for a terminal."""
    return "\n\n".join([_head(asked, advice), _delays(advice), _recommendation(advice), _lateness(advice)])


def _head(asked: AdviceRequest, advice: DelayAdvice) -> str:
    definition, section = asked.definition, asked.definition.watermark
    idle = f"idle after {duration_text(section.idle_timeout)}" if section.idle_timeout else "never idle"
    lateness, interval = duration_text(definition.lateness.allowed), duration_text(section.emit_interval)
    windows = f"{len(advice.firings.ends_ms):,} {definition.window.kind} windows"
    return (
        f"{advice.dataset}  {advice.interval}  {advice.records:,} records, {windows}\n"
        f"allowed lateness {lateness}, a watermark every {interval}, a silent partition is {idle}"
    )


def _delays(advice: DelayAdvice) -> str:
    """A line per delay."""
    outcomes = [advice.at(delay_ms) for delay_ms in advice.shown_ms()]
    most = max(each.dropped + each.late for each in outcomes) or 1
    head = f"{'delay':<14}{'dropped':>9}{'late':>9}{'kept':>10}{'median wait':>13}{'mean wait':>11}  "
    marks = {advice.recommended_ms: "recommended", advice.current_ms: "current"}
    if advice.recommended_ms == advice.current_ms:
        marks = {advice.current_ms: "recommended, current"}
    lines = [f"{_line(each)}  {_bar(each, most):<{_BAR}}  {marks.get(each.delay_ms, '')}" for each in outcomes]
    return "\n".join(line.rstrip() for line in [head + "# dropped, + late", *lines])


def _line(each: DelayEffect) -> str:
    waits = f"{_about(each.wait.median_ms):>13}{_about(each.wait.mean_ms):>11}"
    return f"{duration_text(each.delay_ms):<14}{each.dropped:>9,}{each.late:>9,}{_percent(each.kept):>10}{waits}"


def _bar(each: DelayEffect, most: int) -> str:
    dropped, both = round(_BAR * each.dropped / most), round(_BAR * (each.dropped + each.late) / most)
    return "#" * dropped + "+" * (both - dropped)


def _recommendation(advice: DelayAdvice) -> str:
    best, share = advice.at(advice.recommended_ms), f"{advice.keep * 100:.10g} %"
    delay, waits = duration_text(best.delay_ms), _about(best.wait.median_ms)
    counts = f"{best.dropped:,} are dropped, {best.late:,} late"
    lines = [
        f'Recommended: delay = "{delay}", the smallest that keeps {share} of the records; {counts}.',
        f"The result of a window then waits {waits} for the watermark (median){_compared(advice, best)}.",
        f'For {share} in the first result of their window: delay = "{duration_text(advice.on_time_ms)}".',
    ]
    if best.wait.open_at_end:
        lines.append(f"{best.wait.open_at_end:,} of the windows fire only because the recording ends.")
    if advice.dropped.step_ms > 1:
        lines.append(f"Delays are counted in steps of {duration_text(advice.dropped.step_ms)}.")
    return "\n".join(lines)


def _compared(advice: DelayAdvice, best: DelayEffect) -> str:
    if advice.current_ms is None:
        return "; the definition has no delay of this kind to compare with"
    more_ms = best.wait.median_ms - advice.at(advice.current_ms).wait.median_ms
    if not more_ms:
        return ", as with the current delay"
    return f", {_about(abs(more_ms))} {'more' if more_ms > 0 else 'less'} than with the current delay"


def _lateness(advice: DelayAdvice) -> str:
    """Delays that look at lateness alone, and what each keeps once windows have had their say."""
    lines = [
        "By lateness alone, the delay at which a record would not have been behind the watermark:",
        f"{'quantile':<14}{'delay':>14}{'not behind':>12}{'kept':>10}",
    ]
    for share in SHARES:
        delay_ms = advice.behind.smallest_delay_ms(share)
        lines.append(f"{f'{share * 100:g} %':<14}{_by_lateness(advice, delay_ms)}")
    normal, below = NormalDistribution.from_quantiles(advice.behind), _percent(NormalDist().cdf(DEVIATIONS))
    rule = f"mean + {DEVIATIONS} sd"
    lines.append(f"{rule:<14}{_by_lateness(advice, normal.delay_ms(DEVIATIONS))}")
    fit = f"mean {_about(round(normal.mean_ms))}, sd {_about(round(normal.deviation_ms))}"
    lines.append(f"The last line is a normal distribution's ({fit}), which has {below} below {rule}.")
    return "\n".join(lines)


def _by_lateness(advice: DelayAdvice, delay_ms: int) -> str:
    shares = f"{_percent(advice.behind.unaffected_share(delay_ms)):>12}{_percent(advice.at(delay_ms).kept):>10}"
    return f"{duration_text(delay_ms):>14}{shares}"


def _percent(share: float) -> str:
    """`99.90 %`, rounded down, so that only all is 100."""
    return f"{math.floor(share * 10_000 + 1e-6) / 100:.2f} %"


def _about(value_ms: int) -> str:
    """A duration to the second, from an hour on to the minute."""
    unit_ms = MINUTE_MS if abs(value_ms) >= HOUR_MS else SECOND_MS
    return duration_text(round(value_ms / unit_ms) * unit_ms)
