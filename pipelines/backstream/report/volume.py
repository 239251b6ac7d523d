"""How many events came over time: on time, late, dropped, and those that were expected and are missing."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from backstream.core.intervals import Interval
from backstream.report.buckets import bucket_count, step_ms, time_ticks
from backstream.report.charts import Axis, Bar, BarChart
from backstream.report.words import at_text, count_text, counted, duration_words

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
    bucket_ms = step_ms(span, unit_ms, room)
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
                _bar(rows.get(at), span.start_ms + at * bucket_ms) for at in range(bucket_count(span, bucket_ms))
            ),
        ),
        bar_words="one window" if bucket_ms == unit_ms else duration_words(bucket_ms),
        parts=frozenset(name for _, name in _STACKED if sums[name].sum()),
    )


def _bar(row: dict[Hashable, Any] | None, at_ms: int) -> Bar:
    if row is None or not (row["events"] or row["missing"]):
        return Bar((), f"{at_text(at_ms)}: no event, none expected")
    told = [f"{count_text(row[name])} {name.replace('_', ' ')}" for name in _COUNTS[1:] if row[name]]
    return Bar(
        tuple((style, float(row[name])) for style, name in _STACKED),
        f"{at_text(at_ms)}: {counted(row['events'], 'event')} ({', '.join(told)})",
    )


def _scale(highest: int) -> tuple[float, tuple[tuple[float, str], ...]]:
    """The end of the axis and its ticks: round numbers of events, about four."""
    rough = max(1, highest // _LABELS)
    power = 10 ** (len(str(rough)) - 1)
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    steps = -(-highest // step)
    return float(step * steps), tuple((float(step * at), count_text(step * at)) for at in range(steps + 1))
