"""Time in steps that a chart has room for, and the labels under it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from backstream.definition.model import Limits
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, epoch_ms, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.report.formatting import (
    at_text,
    count_of,
    count_text,
    duration_words,
    limit_text,
    share_text,
    short_day_text,
)
from backstream.report.svg import Axis, Bar, BarChart, Line

STEPS_MS = tuple(
    count * unit_ms
    for unit_ms, counts in (
        (SECOND_MS, (1, 5, 15, 30)),
        (MINUTE_MS, (1, 5, 10, 15, 30)),
        (HOUR_MS, (1, 2, 3, 4, 6, 8, 12)),
        (DAY_MS, (1, 2, 7, 14, 28, 91, 364)),
    )
    for count in counts
)
_LABEL_AT = 0.5  # a label stands under the middle of its bar or cell
_LAST_LABEL = 0.97  # of the range
_MONTHS = 12


def axis_step_ms(shown: Interval, unit_ms: int, room: int) -> int:
    """The smallest step, of whole windows, by which a range makes at most `room` buckets."""
    fitting = [
        step
        for step in (unit_ms, *(each for each in STEPS_MS if each > unit_ms and each % unit_ms == 0))
        if bucket_count(shown, step) <= room
    ]
    span_ms = shown.end_ms - shown.start_ms
    return fitting[0] if fitting else -(-span_ms // room // unit_ms) * unit_ms


def bucket_count(shown: Interval, bucket_ms: int) -> int:
    """How many buckets a range needs."""
    return -(-(shown.end_ms - shown.start_ms) // bucket_ms)


def time_ticks(shown: Interval, bucket_ms: int, most: int) -> tuple[tuple[float, str], ...]:
    """At most about `most` labels: at the beginnings of months, days or hours, whichever leave room."""
    span_ms = shown.end_ms - shown.start_ms
    fitting_ms = [step for step in STEPS_MS if step >= bucket_ms and span_ms / step <= most]
    if span_ms / (14 * DAY_MS) > most or not fitting_ms:
        starts_ms, labelled = _months(shown, most), _month_label()
    else:
        starts_ms, labelled = _steps(shown, fitting_ms[0]), _clock_label(fitting_ms[0])
    # A label near the end would be cut off.
    return tuple(
        ((at_ms - shown.start_ms) // bucket_ms + _LABEL_AT, labelled(at_ms))
        for at_ms in starts_ms
        if at_ms - shown.start_ms <= span_ms * _LAST_LABEL
    )


def _steps(shown: Interval, tick_ms: int) -> list[int]:
    """Instants every `tick_ms`, from the first one on a grid of days at most."""
    grid_ms = min(tick_ms, DAY_MS)
    return list(range(-(-shown.start_ms // grid_ms) * grid_ms, shown.end_ms, tick_ms))


def _months(shown: Interval, most: int) -> list[int]:
    """Beginnings of months, or of every second, third, sixth or twelfth."""
    first, last = utc_datetime(shown.start_ms), utc_datetime(shown.end_ms - 1)
    months = [
        epoch_ms(datetime(year, month, 1, tzinfo=UTC))
        for year in range(first.year, last.year + 1)
        for month in range(1, _MONTHS + 1)
    ]
    inside = [at_ms for at_ms in months if shown.start_ms <= at_ms < shown.end_ms]
    every = next((step for step in (1, 2, 3, 6, _MONTHS) if len(inside) / step <= most), None)
    return inside[:: every or _MONTHS * -(-len(inside) // (_MONTHS * most))]


def _month_label() -> Callable[[int], str]:
    return lambda at_ms: f"{utc_datetime(at_ms):%b %Y}"


def _clock_label(tick_ms: int) -> Callable[[int], str]:
    """Labels for ticks of one step: days, else times of day with the day where it begins."""
    pattern = "%H:%M:%S" if tick_ms < MINUTE_MS else "%H:%M"
    return lambda at_ms: utc_datetime(at_ms).strftime(pattern) if at_ms % DAY_MS else short_day_text(at_ms)


_TOPS = {0.01: 4, 0.02: 4, 0.05: 5, 0.1: 5, 0.2: 4, 0.3: 3, 0.5: 5, 1.0: 4}
"""Where the scale may end, and in how many steps."""
_LOW = 3  # a limit further above the bars than this is named, not drawn: it would flatten them


@dataclass(frozen=True, slots=True)
class LateChart:
    """The chart, how much time a bar stands for, and the limits too far above to be drawn."""

    chart: BarChart
    bar_words: str
    beyond: tuple[str, ...]


def late_chart(frame: pd.DataFrame, span: Interval, unit_ms: int, limits: Limits, room: int) -> LateChart | None:
    """Late and dropped share of events per bucket of windows, in at most `room` bars; None without events."""
    inside = frame[frame["in_range"]]
    events = int(inside["events"].sum())
    if not events:
        return None
    bucket_ms = axis_step_ms(span, unit_ms, room)
    rows = _bucketed(inside, span, bucket_ms)
    highest = max((row["late"] + row["dropped"]) / row["events"] for row in rows.values() if row["events"])
    share = float(inside["late"].sum() + inside["dropped"].sum()) / events
    asked = {"soft limit": limits.warn, "hard limit": limits.fail}
    drawn = {name: at for name, at in asked.items() if at <= max(highest, share, 0.01) * _LOW}
    top = _top(max(highest, share, *drawn.values(), 0.0))
    lines = [Line(at, _style(name), f"{name} {limit_text(at)}") for name, at in drawn.items()]
    lines.append(Line(share, "run", f"share of the whole run {share_text(share, 1)}"))
    return LateChart(
        chart=BarChart(
            label="Share of late and dropped events over time",
            x=Axis("window start (UTC)", time_ticks(span, bucket_ms, max(4, room // 10))),
            y=Axis("share of events", _share_ticks(top)),
            top=top,
            bars=tuple(
                _late_bar(rows.get(at), span.start_ms + at * bucket_ms, top)
                for at in range(bucket_count(span, bucket_ms))
            ),
            lines=tuple(lines),
        ),
        bar_words="one window" if bucket_ms == unit_ms else duration_words(bucket_ms),
        beyond=tuple(f"{name} {limit_text(at)}" for name, at in asked.items() if name not in drawn),
    )


def _bucketed(frame: pd.DataFrame, span: Interval, bucket_ms: int) -> dict[int, dict[Hashable, Any]]:
    """Counts per bucket; `windows` are the expected ones."""
    buckets = (frame["window_start"].astype("int64") - span.start_ms) // bucket_ms
    counts = frame[["events", "late", "dropped"]].assign(windows=frame["is_expected"].astype("int64"))
    return {int(str(at)): row for at, row in counts.groupby(buckets).sum().to_dict("index").items()}


def _late_bar(row: dict[Hashable, Any] | None, at_ms: int, top: float) -> Bar:
    if row is None or not (row["events"] or row["windows"]):
        return Bar((), f"{at_text(at_ms)}: nothing expected, nothing came")
    if not row["events"]:
        return Bar((("void", top),), f"{at_text(at_ms)}: no event of {count_of(row['windows'], 'window')}")
    late, dropped = row["late"] / row["events"], row["dropped"] / row["events"]
    shares = f"{share_text(late, 1)} late, {share_text(dropped, 1)} dropped"
    return Bar(
        (("dropped", dropped), ("late", late)),
        f"{at_text(at_ms)}: {shares} of {count_of(row['events'], 'event')}",
    )


def _style(name: str) -> str:
    return "soft" if name == "soft limit" else "hard"


def _top(highest: float) -> float:
    """The end of the scale: the next round share."""
    return next((top for top in _TOPS if highest * 1.08 <= top), 1.0)


def _share_ticks(top: float) -> tuple[tuple[float, str], ...]:
    steps = _TOPS[top]
    return tuple((top * at / steps, limit_text(round(top * at / steps, 6))) for at in range(steps + 1))


_COUNTS = ["events", "on_time", "late", "dropped", "expired", "missing"]
_STACKED = (("dropped", "dropped"), ("late", "late"), ("fate-on_time", "on_time"), ("void", "missing"))
"""CSS class and count, from the bottom: what is rare would be lost on top of what is common."""
_LABELS = 4


@dataclass(frozen=True, slots=True)
class VolumeChart:
    """The chart, how much time a bar stands for, and the parts that occur."""

    chart: BarChart
    bar_words: str
    parts: frozenset[str]


def volume_chart(frame: pd.DataFrame, span: Interval, unit_ms: int, room: int) -> VolumeChart | None:
    """Events per bucket of windows, in at most `room` bars; None where none came and none was counted on."""
    inside = frame[frame["in_range"]]
    missing = (inside["expected_events"] - inside["events"]).clip(lower=0)
    bucket_ms = axis_step_ms(span, unit_ms, room)
    buckets = (inside["window_start"].astype("int64") - span.start_ms) // bucket_ms
    sums = inside.assign(missing=missing)[_COUNTS].groupby(buckets).sum()
    rows = {int(str(at)): row for at, row in sums.to_dict("index").items()}
    highest = max((row["events"] + row["missing"] for row in rows.values()), default=0)
    if not highest:
        return None
    top, ticks = _scale(int(highest))
    return VolumeChart(
        chart=BarChart(
            label="Events over time by what became of them",
            x=Axis("window start (UTC)", time_ticks(span, bucket_ms, max(4, room // 10))),
            y=Axis("events", ticks),
            top=top,
            bars=tuple(
                _volume_bar(rows.get(at), span.start_ms + at * bucket_ms)
                for at in range(bucket_count(span, bucket_ms))
            ),
        ),
        bar_words="one window" if bucket_ms == unit_ms else duration_words(bucket_ms),
        parts=frozenset(name for _, name in _STACKED if sums[name].sum()),
    )


def _volume_bar(row: dict[Hashable, Any] | None, at_ms: int) -> Bar:
    if row is None or not (row["events"] or row["missing"]):
        return Bar((), f"{at_text(at_ms)}: no event, none expected")
    told = [f"{count_text(row[name])} {name.replace('_', ' ')}" for name in _COUNTS[1:] if row[name]]
    return Bar(
        tuple((style, float(row[name])) for style, name in _STACKED),
        f"{at_text(at_ms)}: {count_of(row['events'], 'event')} ({', '.join(told)})",
    )


def _scale(highest: int) -> tuple[float, tuple[tuple[float, str], ...]]:
    """The end of the axis and its ticks: round numbers of events, about four."""
    rough = max(1, highest // _LABELS)
    power = 10 ** (len(str(rough)) - 1)
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    steps = -(-highest // step)
    return float(step * steps), tuple((float(step * at), count_text(step * at)) for at in range(steps + 1))
