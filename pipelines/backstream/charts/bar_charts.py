"""Compute bar charts over time: late and dropped events, event volume, and their time axis."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from backstream.charts.svg import Axis, Bar, BarChart, Line
from backstream.definition.run_sections import Limits
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, epoch_ms, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.formatting import (
    at_text,
    count_of,
    count_text,
    duration_words,
    limit_text,
    share_text,
    short_day_text,
)
from backstream.quality.window_rows import Longs, cut_rows

_STEPS_MS = tuple(
    count * unit_ms
    for unit_ms, counts in (
        (SECOND_MS, (1, 5, 15, 30)),
        (MINUTE_MS, (1, 5, 10, 15, 30)),
        (HOUR_MS, (1, 2, 3, 4, 6, 8, 12)),
        (DAY_MS, (1, 2, 7, 14, 28, 91, 364)),
    )
    for count in counts
)
_LABEL_AT = 0.5  # A label is below the middle of its bar or cell.
_LAST_LABEL = 0.97  # Share of the range; a later label would be cut off.
_MONTHS = 12


def axis_step_ms(shown: Interval, unit_ms: int, room: int) -> int:
    """Return the smallest step of whole windows that divides a range into at most `room` buckets."""
    fitting = [
        step
        for step in (unit_ms, *(step for step in _STEPS_MS if step > unit_ms and step % unit_ms == 0))
        if bucket_count(shown, step) <= room
    ]
    span_ms = shown.end_ms - shown.start_ms
    return fitting[0] if fitting else -(-span_ms // room // unit_ms) * unit_ms


def bucket_count(shown: Interval, bucket_ms: int) -> int:
    """Return the number of buckets in a range."""
    return -(-(shown.end_ms - shown.start_ms) // bucket_ms)


def bucket_edges_ms(shown: Interval, bucket_ms: int) -> Longs:
    """Return the starts of the buckets in a range."""
    return np.arange(shown.start_ms, shown.end_ms, bucket_ms, dtype=np.int64)


def time_ticks(shown: Interval, bucket_ms: int, most: int) -> tuple[tuple[float, str], ...]:
    """Return about `most` labels or fewer, at the starts of months, days, or hours."""
    span_ms = shown.end_ms - shown.start_ms
    fitting_ms = [step for step in _STEPS_MS if step >= bucket_ms and span_ms / step <= most]
    if span_ms / (14 * DAY_MS) > most or not fitting_ms:
        starts_ms, label = _month_starts(shown, most), _month_label()
    else:
        starts_ms, label = _step_starts(shown, fitting_ms[0]), _clock_label(fitting_ms[0])
    return tuple(
        ((at_ms - shown.start_ms) // bucket_ms + _LABEL_AT, label(at_ms))
        for at_ms in starts_ms
        if at_ms - shown.start_ms <= span_ms * _LAST_LABEL
    )


def _step_starts(shown: Interval, tick_ms: int) -> list[int]:
    """Return instants every `tick_ms`, aligned to `tick_ms` but at most to days."""
    grid_ms = min(tick_ms, DAY_MS)
    return list(range(-(-shown.start_ms // grid_ms) * grid_ms, shown.end_ms, tick_ms))


def _month_starts(shown: Interval, most: int) -> list[int]:
    """Return the starts of months, or of every second, third, sixth, or twelfth month."""
    first, last = utc_datetime(shown.start_ms), utc_datetime(shown.end_ms - 1)
    months = [
        epoch_ms(datetime(year, month, 1, tzinfo=UTC))
        for year in range(first.year, last.year + 1)
        for month in range(1, _MONTHS + 1)
    ]
    inside = [at_ms for at_ms in months if shown.start_ms <= at_ms < shown.end_ms]
    stride = next((step for step in (1, 2, 3, 6, _MONTHS) if len(inside) / step <= most), None)
    return inside[:: stride or _MONTHS * -(-len(inside) // (_MONTHS * most))]


def _month_label() -> Callable[[int], str]:
    return lambda at_ms: f"{utc_datetime(at_ms):%b %Y}"


def _clock_label(tick_ms: int) -> Callable[[int], str]:
    """Return the label function for ticks of one step: a time of day, and the date at midnight."""
    pattern = "%H:%M:%S" if tick_ms < MINUTE_MS else "%H:%M"
    return lambda at_ms: utc_datetime(at_ms).strftime(pattern) if at_ms % DAY_MS else short_day_text(at_ms)


_TOPS = {0.01: 4, 0.02: 4, 0.05: 5, 0.1: 5, 0.2: 4, 0.3: 3, 0.5: 5, 1.0: 4}
"""Ends of the scale, and the number of steps up to them."""
_MAX_LIMIT_RATIO = 3  # A limit above this multiple of the bars is named, not drawn: it would flatten them.


@dataclass(frozen=True, slots=True)
class LateChart:
    """Chart of late events, the time span of one bar, and the limits above the scale."""

    chart: BarChart
    bar_words: str
    beyond: tuple[str, ...]


def late_chart(frame: pd.DataFrame, span: Interval, unit_ms: int, limits: Limits, room: int) -> LateChart | None:
    """Return the share of late and dropped events over time in at most `room` bars; None without events."""
    inside = frame[frame["in_range"]]
    events = int(inside["events"].sum())
    if not events:
        return None
    bucket_ms = axis_step_ms(span, unit_ms, room)
    rows = _sum_buckets(inside, span, bucket_ms)
    highest = max((row["late"] + row["dropped"]) / row["events"] for row in rows.values() if row["events"])
    share = float(inside["late"].sum() + inside["dropped"].sum()) / events
    both = {"soft limit": limits.warn, "hard limit": limits.fail}
    drawn = {name: limit for name, limit in both.items() if limit <= max(highest, share, 0.01) * _MAX_LIMIT_RATIO}
    top = _scale_end(max(highest, share, *drawn.values(), 0.0))
    lines = [
        Line(limit, "soft" if name == "soft limit" else "hard", f"{name} {limit_text(limit)}")
        for name, limit in drawn.items()
    ]
    lines.append(Line(share, "run", f"whole run {share_text(share, 1)}"))
    return LateChart(
        chart=BarChart(
            label="Share of late and dropped events over time",
            x=Axis("window start (UTC)", time_ticks(span, bucket_ms, max(4, room // 10))),
            y=Axis("share of events", _share_ticks(top)),
            top=top,
            bars=tuple(
                _late_bar(rows.get(bucket), span.start_ms + bucket * bucket_ms, top)
                for bucket in range(bucket_count(span, bucket_ms))
            ),
            lines=tuple(lines),
        ),
        bar_words="one window" if bucket_ms == unit_ms else duration_words(bucket_ms),
        beyond=tuple(f"{name} {limit_text(limit)}" for name, limit in both.items() if name not in drawn),
    )


def _sum_buckets(frame: pd.DataFrame, span: Interval, bucket_ms: int) -> dict[int, dict[Hashable, Any]]:
    """Return counts by bucket; `windows` is the number of expected windows."""
    cut = cut_rows(frame, bucket_edges_ms(span, bucket_ms))
    buckets = (cut["window_start"].astype("int64") - span.start_ms) // bucket_ms
    counts = cut[["events", "late", "dropped"]].assign(windows=cut["windows"].where(cut["is_expected"], 0))
    return {int(str(bucket)): row for bucket, row in counts.groupby(buckets).sum().to_dict("index").items()}


def _late_bar(row: dict[Hashable, Any] | None, at_ms: int, top: float) -> Bar:
    if row is None or not (row["events"] or row["windows"]):
        return Bar((), f"{at_text(at_ms)}: no events, none expected")
    if not row["events"]:
        return Bar(
            (("void", top),), f"{at_text(at_ms)}: no events in {count_of(row['windows'], 'expected window')}"
        )
    late, dropped = row["late"] / row["events"], row["dropped"] / row["events"]
    shares = f"{share_text(late, 1)} late, {share_text(dropped, 1)} dropped"
    return Bar(
        (("dropped", dropped), ("late", late)),
        f"{at_text(at_ms)}: {shares} of {count_of(row['events'], 'event')}",
    )


def _scale_end(highest: float) -> float:
    """Return the next round share above the bars."""
    return next((top for top in _TOPS if highest * 1.08 <= top), 1.0)


def _share_ticks(top: float) -> tuple[tuple[float, str], ...]:
    steps = _TOPS[top]
    return tuple((top * step / steps, limit_text(round(top * step / steps, 6))) for step in range(steps + 1))


_COUNTS = ["events", "on_time", "late", "dropped", "expired", "missing"]
_STACKED = (("dropped", "dropped"), ("late", "late"), ("fate-on_time", "on_time"), ("void", "missing"))
"""CSS class and count, from the bottom: a small part on top of a large one would be hard to see."""
_LABELS = 4


@dataclass(frozen=True, slots=True)
class VolumeChart:
    """Chart of events, the time span of one bar, and the stacked parts that occur."""

    chart: BarChart
    bar_words: str
    parts: frozenset[str]


def volume_chart(frame: pd.DataFrame, span: Interval, unit_ms: int, room: int) -> VolumeChart | None:
    """Return events over time in at most `room` bars; None without events and expected events."""
    inside = frame[frame["in_range"]]
    missing = (inside["expected_events"] - inside["events"]).clip(lower=0)
    bucket_ms = axis_step_ms(span, unit_ms, room)
    buckets = (inside["window_start"].astype("int64") - span.start_ms) // bucket_ms
    sums = inside.assign(missing=missing)[_COUNTS].groupby(buckets).sum()
    rows = {int(str(bucket)): row for bucket, row in sums.to_dict("index").items()}
    highest = max((row["events"] + row["missing"] for row in rows.values()), default=0)
    if not highest:
        return None
    top, ticks = count_scale(int(highest))
    return VolumeChart(
        chart=BarChart(
            label="Events over time by fate",
            x=Axis("window start (UTC)", time_ticks(span, bucket_ms, max(4, room // 10))),
            y=Axis("events", ticks),
            top=top,
            bars=tuple(
                _volume_bar(rows.get(bucket), span.start_ms + bucket * bucket_ms)
                for bucket in range(bucket_count(span, bucket_ms))
            ),
        ),
        bar_words="one window" if bucket_ms == unit_ms else duration_words(bucket_ms),
        parts=frozenset(name for _, name in _STACKED if sums[name].sum()),
    )


def _volume_bar(row: dict[Hashable, Any] | None, at_ms: int) -> Bar:
    if row is None or not (row["events"] or row["missing"]):
        return Bar((), f"{at_text(at_ms)}: no events, none expected")
    parts = [f"{count_text(row[name])} {name.replace('_', ' ')}" for name in _COUNTS[1:] if row[name]]
    return Bar(
        tuple((style, float(row[name])) for style, name in _STACKED),
        f"{at_text(at_ms)}: {count_of(row['events'], 'event')} ({', '.join(parts)})",
    )


def count_scale(highest: int) -> tuple[float, tuple[tuple[float, str], ...]]:
    """Return the end of the axis and about four ticks at round numbers of events."""
    rough = max(1, highest // _LABELS)
    power = 10 ** (len(str(rough)) - 1)
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    steps = -(-highest // step)
    return float(step * steps), tuple((float(step * n), count_text(step * n)) for n in range(steps + 1))
