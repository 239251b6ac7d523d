"""Load the newest delay analysis of a dataset, and chart lost records by watermark delay.

`backstream advise` computes the analysis with Spark; a page never starts Spark.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from backstream.charts.line_charts import ChartMark, DelayCurveChart, StepLine, draw_delay_curve
from backstream.charts.svg import Axis, Frame
from backstream.charts.timelines import PartitionLine, PartitionTimeline, draw_partition_timeline
from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.instants import MINUTE_MS, duration_ms, instant_ms
from backstream.eventtime.watermark_holders import Span, WatermarkHolder
from backstream.formatting import duration_words, limit_text, share_text
from backstream.runs.home import Home
from backstream.storage.files import load_json

_FRAME = Frame(64, 10, 1_060, 300)
_TICKS = 4
_MIN_TOP = 0.01
_MAX_HOLDERS, _NAMED_HOLDERS = 10, 3


@dataclass(frozen=True, slots=True)
class DelayLoss:
    """Dropped and late records with one delay; `name` is empty, `recommended`, or `in force`."""

    delay_ms: int
    dropped: int
    late: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class LatenessLoss:
    """Dropped and late records with one allowed lateness and the delay `delay_ms`."""

    allowed_ms: int
    delay_ms: int
    dropped: int
    late: int
    is_current: bool


@dataclass(frozen=True, slots=True)
class _Steps:
    """The delays at which a count changes, with the counts."""

    delays_ms: tuple[int, ...]
    dropped: tuple[int, ...]
    late: tuple[int, ...]

    @classmethod
    def parse(cls, columns: Mapping[str, Any]) -> _Steps:
        """Parse the columns of a stored curve.

        Raises:
            ValueError: when the columns have different lengths.
        """
        delays_ms, dropped, late = (tuple(map(int, columns[name])) for name in ("delay_ms", "dropped", "late"))
        if not delays_ms or not len(delays_ms) == len(dropped) == len(late):
            msg = "the columns have different lengths"
            raise ValueError(msg)
        return cls(delays_ms, dropped, late)

    def lines(self, records: int, suffix: str = "") -> list[StepLine]:
        """Return the shares of late or dropped records, and of dropped ones, as lines."""
        whole = max(1, records)
        both = [dropped + late for dropped, late in zip(self.dropped, self.late, strict=True)]
        return [
            StepLine(f"line-late{suffix}", self.delays_ms, [count / whole for count in both]),
            StepLine(f"line-dropped{suffix}", self.delays_ms, [count / whole for count in self.dropped]),
        ]


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Newest delay analysis of a dataset; `losses_and_waits` fills its table, with median waits in ms.

    `assumed` describes a hypothesis; empty without one. `recorded` is then the curve without it, and `compared`
    has the loss and the median wait in ms with one delay, as recorded and as assumed. `holders` are the partitions
    that hold the watermark back, and `charted` is the time of their chart.
    """

    since_ms: int
    until_ms: int
    records: int
    keep: float
    recommended_ms: int
    on_time_ms: int
    current_ms: int | None
    steps: _Steps
    losses_and_waits: tuple[tuple[DelayLoss, int], ...]
    advised_at_ms: int
    assumed: str = ""
    latenesses: tuple[LatenessLoss, ...] = ()
    holders: tuple[WatermarkHolder, ...] = ()
    idle_timeout_ms: int | None = None
    charted: Span | None = None
    recorded: _Steps | None = None
    compared: tuple[tuple[DelayLoss, int], ...] = ()

    def at(self, delay_ms: int, name: str = "") -> DelayLoss:
        """Return the exact loss of any delay."""
        index = max(0, bisect_right(self.steps.delays_ms, delay_ms) - 1)
        return DelayLoss(delay_ms, self.steps.dropped[index], self.steps.late[index], name)

    @property
    def marked_losses(self) -> list[DelayLoss]:
        """Recommended delay, and the current delay if the definition has one."""
        losses = [self.at(self.recommended_ms, "recommended")]
        return losses if self.current_ms is None else [*losses, self.at(self.current_ms, "in force")]

    @property
    def is_in_force(self) -> bool:
        """Return whether the current delay is the recommended one."""
        return self.current_ms == self.recommended_ms


def load_curve(home: Home, dataset: str) -> LossCurve | None:
    """Return the newest delay analysis; None if there is none.

    Raises:
        BackstreamError: when the file is not a delay analysis.
    """
    path = home.advice(dataset)
    if not path.is_file():
        return None
    try:
        return _parse_curve(load_json(path, "advice"), path.stat().st_mtime_ns // 1_000_000)
    except (KeyError, TypeError, ValueError) as error:
        msg = f"cannot read the delay analysis {path}: {type(error).__name__} {error}"
        raise BackstreamError(msg + "\n\nhint: run `backstream advise` again") from None


def parse_delay_ms(text: str) -> int | None:
    """Return a delay in milliseconds; None for text that is no duration of at least zero."""
    try:
        delay_ms = duration_ms(text.strip())
    except SpecError:
        return None
    return delay_ms if delay_ms >= 0 else None


def draw_curve(curve: LossCurve, selected: DelayLoss | None) -> Markup:
    """Return the chart of the lost records by watermark delay."""
    return draw_delay_curve(_chart(curve, selected), _FRAME)


def draw_holders(curve: LossCurve) -> Markup | None:
    """Return the chart of the partitions that hold the watermark; None without any."""
    if not curve.holders or curve.charted is None:
        return None
    shown = curve.holders[:_MAX_HOLDERS]
    held = ", ".join(
        f"{holder.source_partition} held it for {duration_words(holder.held_ms // MINUTE_MS * MINUTE_MS)}"
        for holder in shown[:_NAMED_HOLDERS]
    )
    lines = [PartitionLine(holder.source_partition, holder.silences, holder.holds) for holder in shown]
    timeline = PartitionTimeline(f"Partitions that hold the watermark back: {held}", *curve.charted, lines)
    return draw_partition_timeline(timeline, 8, 1_060)


def _chart(curve: LossCurve, selected: DelayLoss | None) -> DelayCurveChart:
    lines = curve.steps.lines(curve.records)
    if curve.recorded is not None:
        lines = [*curve.recorded.lines(curve.records, " as-recorded"), *lines]
    step = _round_step(max(_MIN_TOP, *(line.values[0] for line in lines)) / _TICKS)
    top = step * _TICKS
    marks = [ChartMark(f"mark-{loss.name.replace(' ', '-')}", loss.delay_ms) for loss in curve.marked_losses]
    marks += [ChartMark("mark-selected", selected.delay_ms)] if selected else []
    most_ms = max([*(line.at_ms[-1] for line in lines), *(mark.at_ms for mark in marks)])
    ticks = tuple((n * step, share_text(n * step, 1) if n else "0") for n in range(_TICKS + 1))
    return DelayCurveChart(
        label=_label(curve),
        x_title="watermark delay (logarithmic scale)",
        y=Axis("share of records", ticks),
        top=top,
        most_ms=most_ms,
        lines=tuple(lines),
        marks=tuple(marks),
    )


def _round_step(least: float) -> float:
    """Return the next of 1, 2, 2.5, and 5 times a power of ten."""
    magnitude = 10.0 ** math.floor(math.log10(least))
    return next(step for factor in (1, 2, 2.5, 5, 10) if (step := factor * magnitude) >= least * (1 - 1e-9))


def _label(curve: LossCurve) -> str:
    zero, best = curve.at(0), curve.at(curve.recommended_ms)
    return (
        f"Share of {curve.records:,} records that are dropped or late, by watermark delay: without a delay"
        f" {share_text(zero.dropped, curve.records)} dropped; with the recommended {duration_words(best.delay_ms)}"
        f" {share_text(best.dropped, curve.records)} dropped, to keep {limit_text(curve.keep)}"
    )


def _parse_curve(content: Mapping[str, Any], at_ms: int) -> LossCurve:
    current, recorded = content["current_ms"], content.get("recorded")
    return LossCurve(
        instant_ms(content["since"], "since"),
        instant_ms(content["until"], "until"),
        int(content["records"]),
        float(content["keep"]),
        int(content["recommended_ms"]),
        int(content["on_time_ms"]),
        None if current is None else int(current),
        _Steps.parse(content["curve"]),
        tuple(map(_parse_effect, content["shown"])),
        at_ms,
        str(content.get("assumed", "")),
        tuple(
            LatenessLoss(
                int(row["allowed_ms"]),
                int(row["delay_ms"]),
                int(row["dropped"]),
                int(row["late"]),
                row["allowed_ms"] == content.get("lateness_ms"),
            )
            for row in content.get("lateness", ())
        ),
        tuple(WatermarkHolder(**holder) for holder in content.get("holders", ())),
        content.get("idle_timeout_ms"),
        None if content.get("charted") is None else (int(content["charted"][0]), int(content["charted"][1])),
        None if recorded is None else _Steps.parse(recorded["curve"]),
        () if recorded is None else tuple(map(_parse_effect, recorded["compared"])),
    )


def _parse_effect(row: Mapping[str, Any]) -> tuple[DelayLoss, int]:
    loss = DelayLoss(int(row["delay_ms"]), int(row["dropped"]), int(row["late"]))
    return loss, int(row["median_wait_ms"])
