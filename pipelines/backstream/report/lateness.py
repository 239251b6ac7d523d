"""How late events were: shares of late and dropped events over time, beside the limits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from backstream.core.intervals import Interval
from backstream.definition.model import Limits
from backstream.report.buckets import bucket_count, step_ms, time_ticks
from backstream.report.charts import Axis, Bar, BarChart, Line
from backstream.report.words import at_text, counted, duration_words, limit_text, share_text

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
    bucket_ms = step_ms(span, unit_ms, room)
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
                _bar(rows.get(at), span.start_ms + at * bucket_ms, top)
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


def _bar(row: dict[Hashable, Any] | None, at_ms: int, top: float) -> Bar:
    if row is None or not (row["events"] or row["windows"]):
        return Bar((), f"{at_text(at_ms)}: nothing expected, nothing came")
    if not row["events"]:
        return Bar((("void", top),), f"{at_text(at_ms)}: no event of {counted(row['windows'], 'window')}")
    late, dropped = row["late"] / row["events"], row["dropped"] / row["events"]
    shares = f"{share_text(late, 1)} late, {share_text(dropped, 1)} dropped"
    return Bar(
        (("dropped", dropped), ("late", late)),
        f"{at_text(at_ms)}: {shares} of {counted(row['events'], 'event')}",
    )


def _style(name: str) -> str:
    return "soft" if name == "soft limit" else "hard"


def _top(highest: float) -> float:
    """The end of the scale: the next round share."""
    return next((top for top in _TOPS if highest * 1.08 <= top), 1.0)


def _share_ticks(top: float) -> tuple[tuple[float, str], ...]:
    steps = _TOPS[top]
    return tuple((top * at / steps, limit_text(round(top * at / steps, 6))) for at in range(steps + 1))
