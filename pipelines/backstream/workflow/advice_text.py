"""Show the advice on a watermark delay as text for a terminal."""

from __future__ import annotations

import math
from statistics import NormalDist

from backstream.eventtime.delay_analysis import DelayAdvice, DelayEffect, NormalDistribution
from backstream.eventtime.instants import HOUR_MS, MINUTE_MS, SECOND_MS, duration_text, instant_text
from backstream.text import align_cells, visible_line
from backstream.workflow.advise import AdviceRequest

_SHARES = (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
"""Quantiles of lateness for which the text shows a delay."""
_DEVIATIONS = 2
"""Standard deviations above the mean in the normal rule of thumb."""
_BAR_WIDTH = 24
_DELAY_COLUMNS = ("delay", "dropped", "late", "kept", "median wait", "mean wait")
_HOLDERS_SHOWN = 5


def advice_text(request: AdviceRequest, advice: DelayAdvice) -> str:
    """Return the advice as text for a terminal."""
    sections = [
        _head(request, advice),
        _comparison_table(advice),
        _delay_table(advice),
        _recommendation(advice),
        _allowed_lateness_table(advice),
        _holder_table(advice),
        _lateness_table(advice),
    ]
    return "\n\n".join(section for section in sections if section)


def _comparison_table(advice: DelayAdvice) -> str:
    """Return what was recorded beside the hypothesis; empty without a hypothesis."""
    if advice.recorded is None:
        return ""
    rows: list[tuple[str, ...]] = [("", *_DELAY_COLUMNS[1:])]
    for name, each in (("as recorded", advice.recorded), ("assumed", advice)):
        rows.append((name, *_delay_cells(each.at(advice.compared_ms))[1:]))
    lines = align_cells(rows, right=range(1, len(rows[0])))
    return "\n".join([f"With a delay of {duration_text(advice.compared_ms)}:", *lines])


def _holder_table(advice: DelayAdvice) -> str:
    """Return the slowest partitions, if one of them should become idle; empty otherwise."""
    if advice.idle_timeout_ms is None:
        return ""
    timeout = duration_text(advice.idle_timeout_ms)
    rows = [("slowest partition", "held for", "longest silence", "from", "until")]
    for holder in advice.holders[:_HOLDERS_SHOWN]:
        held, silent = (_rough_duration(value_ms) for value_ms in (holder.held_ms, holder.silent_ms))
        bounds = (_minute(holder.silent_from_ms), _minute(holder.silent_until_ms))
        rows.append((visible_line(holder.source_partition), held, silent, *bounds))
    lines = [
        "Silent partitions hold the watermark back, whatever the delay is:",
        *align_cells(rows),
        f'Recommended: idle_timeout = "{timeout}", longer than nearly all pauses between records of a partition.',
        f"To see the waits with it: backstream advise {advice.dataset} .. --idle-timeout {timeout}",
    ]
    return "\n".join(lines)


def _allowed_lateness_table(advice: DelayAdvice) -> str:
    """Return the dropped and late records by allowed lateness, with the current delay or the recommended one."""
    sweep = advice.lateness_sweep()
    if not sweep:
        return ""
    delay_ms = advice.recommended_ms if advice.current_ms is None else advice.current_ms
    rows = [("allowed lateness", "dropped", "late", "kept", "")]
    for lateness_ms, effect in sweep:
        mark = "current" if lateness_ms == advice.lateness_ms else ""
        counts = (f"{effect.dropped:,}", f"{effect.late:,}", _percent(effect.kept))
        rows.append((duration_text(lateness_ms), *counts, mark))
    lines = align_cells(rows, right=range(1, len(rows[0]) - 1))
    return "\n".join([f"Allowed lateness, with a delay of {duration_text(delay_ms)}:", *lines])


def _minute(value_ms: int) -> str:
    return instant_text(value_ms - value_ms % MINUTE_MS)


def _head(request: AdviceRequest, advice: DelayAdvice) -> str:
    definition, section = request.definition, request.definition.watermark
    timeouts_ms = sorted({strategy.idle_timeout_ms for strategy in definition.emission.strategies})
    idle = " or ".join(f"idle after {duration_text(ms)}" if ms else "never idle" for ms in timeouts_ms)
    lateness, interval = duration_text(definition.lateness.allowed), duration_text(section.emit_interval)
    windows = f"{len(advice.firings.ends_ms):,} {definition.window.kind} windows"
    assumed = f"\nassumed: {visible_line(advice.assumed)}" if advice.assumed else ""
    return (
        f"{advice.dataset}  {advice.interval}  {advice.records:,} records, {windows}\n"
        f"allowed lateness {lateness}, a watermark every {interval}, a silent partition is {idle}{assumed}"
    )


def _delay_table(advice: DelayAdvice) -> str:
    """Return a line per delay."""
    effects = [advice.at(delay_ms) for delay_ms in advice.shown_ms()]
    max_count = max(effect.dropped + effect.late for effect in effects) or 1
    marks = {advice.recommended_ms: "recommended", advice.current_ms: "current"}
    if advice.recommended_ms == advice.current_ms:
        marks = {advice.current_ms: "recommended, current"}
    rows: list[tuple[str, ...]] = [(*_DELAY_COLUMNS, "# dropped, + late", "")]
    rows += [(*_delay_cells(each), _bar(each, max_count), marks.get(each.delay_ms, "")) for each in effects]
    return "\n".join(align_cells(rows, right=range(1, len(_DELAY_COLUMNS))))


def _delay_cells(effect: DelayEffect) -> tuple[str, ...]:
    waits = (_rough_duration(effect.wait.median_ms), _rough_duration(effect.wait.mean_ms))
    return (
        duration_text(effect.delay_ms),
        f"{effect.dropped:,}",
        f"{effect.late:,}",
        _percent(effect.kept),
        *waits,
    )


def _bar(effect: DelayEffect, max_count: int) -> str:
    dropped = round(_BAR_WIDTH * effect.dropped / max_count)
    total = round(_BAR_WIDTH * (effect.dropped + effect.late) / max_count)
    return "#" * dropped + "+" * (total - dropped)


def _recommendation(advice: DelayAdvice) -> str:
    best, share = advice.at(advice.recommended_ms), f"{advice.keep * 100:.10g} %"
    delay, waits = duration_text(best.delay_ms), _rough_duration(best.wait.median_ms)
    counts = f"{best.dropped:,} are dropped, {best.late:,} late"
    lines = [
        f'Recommended: delay = "{delay}", the smallest that keeps {share} of the records; {counts}.',
        f"The result of a window then waits {waits} for the watermark (median){_comparison(advice, best)}.",
        f'For {share} in the first result of their window: delay = "{duration_text(advice.on_time_ms)}".',
    ]
    if best.wait.open_at_end:
        lines.append(f"{best.wait.open_at_end:,} of the windows fire only because the recording ends.")
    if advice.dropped.step_ms > 1:
        lines.append(f"Delays are counted in steps of {duration_text(advice.dropped.step_ms)}.")
    return "\n".join(lines)


def _comparison(advice: DelayAdvice, best: DelayEffect) -> str:
    if advice.current_ms is None:
        return "; the definition has no delay of this kind to compare with"
    more_ms = best.wait.median_ms - advice.at(advice.current_ms).wait.median_ms
    if not more_ms:
        return ", as with the current delay"
    return f", {_rough_duration(abs(more_ms))} {'more' if more_ms > 0 else 'less'} than with the current delay"


def _lateness_table(advice: DelayAdvice) -> str:
    """Return the delays of the usual rules of thumb, which use only lateness, and the share that each keeps."""
    rows = [("quantile", "delay", "not behind", "kept")]
    rows += [
        (f"{share * 100:g} %", *_lateness_cells(advice, advice.behind.smallest_delay_ms(share)))
        for share in _SHARES
    ]
    normal, below = NormalDistribution.fit(advice.behind), _percent(NormalDist().cdf(_DEVIATIONS))
    rule = f"mean + {_DEVIATIONS} sd"
    rows.append((rule, *_lateness_cells(advice, normal.delay_ms(_DEVIATIONS))))
    title = "By lateness alone, the delay at which a record would not have been behind the watermark:"
    lines = [title, *align_cells(rows, right=range(1, len(rows[0])))]
    fit = f"mean {_rough_duration(round(normal.mean_ms))}, sd {_rough_duration(round(normal.deviation_ms))}"
    lines.append(f"The last line is a normal distribution's ({fit}), which has {below} below {rule}.")
    return "\n".join(lines)


def _lateness_cells(advice: DelayAdvice, delay_ms: int) -> tuple[str, str, str]:
    shares = (_percent(advice.behind.unaffected_share(delay_ms)), _percent(advice.at(delay_ms).kept))
    return duration_text(delay_ms), *shares


def _percent(share: float) -> str:
    """Return text such as `99.90 %`, rounded down: only a share of 1 is `100.00 %`."""
    return f"{math.floor(share * 10_000 + 1e-6) / 100:.2f} %"


def _rough_duration(value_ms: int) -> str:
    """Return a duration rounded to seconds; from one hour on, to minutes."""
    unit_ms = MINUTE_MS if abs(value_ms) >= HOUR_MS else SECOND_MS
    return duration_text(round(value_ms / unit_ms) * unit_ms)
