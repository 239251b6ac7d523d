"""Loss against delay: the newest advice, read back. Working it out takes Spark, which no page starts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.instants import duration_ms, instant_ms
from backstream.report.formatting import duration_words, limit_text, share_text
from backstream.report.line_charts import ChartMark, DelayCurveChart, StepLine, draw_delay_curve
from backstream.report.svg import Axis, Frame
from backstream.runs.home import Home, load_json

_WIDE, _NARROW = Frame(64, 10, 1_060, 300), Frame(64, 10, 296, 240)
_TICKS = 4
_LEAST_TOP = 0.01


@dataclass(frozen=True, slots=True)
class DelayLoss:
    """What one delay does: counts of records, and what it is called where it has a name."""

    delay_ms: int
    dropped: int
    late: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class LossCurve:
    """The newest advice on a dataset; `shown` are the delays of its table, with their median waits in ms."""

    since_ms: int
    until_ms: int
    records: int
    keep: float
    recommended_ms: int
    on_time_ms: int
    current_ms: int | None
    delays_ms: tuple[int, ...]
    dropped: tuple[int, ...]
    late: tuple[int, ...]
    shown: tuple[tuple[DelayLoss, int], ...]
    advised_at_ms: int

    def at(self, delay_ms: int, name: str = "") -> DelayLoss:
        """What any delay does, exactly."""
        place = max(0, bisect_right(self.delays_ms, delay_ms) - 1)
        return DelayLoss(delay_ms, self.dropped[place], self.late[place], name)

    @property
    def named(self) -> list[DelayLoss]:
        """The recommended delay, and the one in force."""
        found = [self.at(self.recommended_ms, "recommended")]
        return found if self.current_ms is None else [*found, self.at(self.current_ms, "in force")]

    @property
    def is_in_force(self) -> bool:
        """Whether the delay in force is the recommended one."""
        return self.current_ms == self.recommended_ms


def load_curve(home: Home, dataset: str) -> LossCurve | None:
    """The newest advice; None when nobody asked for any.

    Raises:
        LedgerError: when the file does not hold what advice is.
    """
    path = home.advice(dataset)
    if not path.is_file():
        return None
    try:
        return _curve(load_json(path, "advice"), path.stat().st_mtime_ns // 1_000_000)
    except (KeyError, TypeError, ValueError) as error:
        msg = f"the advice at {path} cannot be read: {type(error).__name__} {error}"
        raise BackstreamError(msg + "\n\nhint: run backstream advise again") from None


def parse_delay_ms(text: str) -> int | None:
    """The delay that somebody typed; None when it is none."""
    try:
        found = duration_ms(text.strip())
    except SpecError:
        return None
    return found if found >= 0 else None


def draw_curve(curve: LossCurve, asked: DelayLoss | None) -> tuple[Markup, Markup]:
    """The curve twice: for where there is room, and for a phone."""
    return draw_delay_curve(_chart(curve, asked, 1), _WIDE), draw_delay_curve(_chart(curve, asked, 2), _NARROW)


def _chart(curve: LossCurve, asked: DelayLoss | None, every: int) -> DelayCurveChart:
    both = [dropped + late for dropped, late in zip(curve.dropped, curve.late, strict=True)]
    whole = max(1, curve.records)
    step = _round_step(max(_LEAST_TOP, both[0] / whole) / _TICKS)
    top = step * _TICKS
    marks = [ChartMark(f"mark-{loss.name.replace(' ', '-')}", loss.delay_ms) for loss in curve.named]
    marks += [ChartMark("mark-asked", asked.delay_ms)] if asked else []
    most_ms = max([curve.delays_ms[-1], *(mark.at_ms for mark in marks)])
    ticks = tuple((n * step, share_text(n * step, 1) if n else "0") for n in range(0, _TICKS + 1, every))
    return DelayCurveChart(
        label=_label(curve),
        x_title="delay of the watermark (logarithmic scale)",
        y=Axis("share of records", ticks),
        top=top,
        most_ms=most_ms,
        lines=(
            StepLine("line-late", curve.delays_ms, [each / whole for each in both]),
            StepLine("line-dropped", curve.delays_ms, [each / whole for each in curve.dropped]),
        ),
        marks=tuple(marks),
    )


def _round_step(least: float) -> float:
    """The next of 1, 2, 2.5 and 5 times a power of ten."""
    magnitude = 10.0 ** math.floor(math.log10(least))
    return next(step for factor in (1, 2, 2.5, 5, 10) if (step := factor * magnitude) >= least * (1 - 1e-9))


def _label(curve: LossCurve) -> str:
    first, best = curve.at(0), curve.at(curve.recommended_ms)
    return (
        f"Share of {curve.records:,} records that are dropped or late, falling as the delay grows: without a delay"
        f" {share_text(first.dropped, curve.records)} dropped; at the recommended {duration_words(best.delay_ms)}"
        f" {share_text(best.dropped, curve.records)} dropped, which keeps {limit_text(curve.keep)}"
    )


def _curve(content: Mapping[str, Any], at_ms: int) -> LossCurve:
    line = content["curve"]
    delays_ms, dropped, late = (tuple(map(int, line[name])) for name in ("delay_ms", "dropped", "late"))
    if not delays_ms or not len(delays_ms) == len(dropped) == len(late):
        msg = "its columns differ in length"
        raise ValueError(msg)
    current = content["current_ms"]
    return LossCurve(
        instant_ms(content["since"], "since"),
        instant_ms(content["until"], "until"),
        int(content["records"]),
        float(content["keep"]),
        int(content["recommended_ms"]),
        int(content["on_time_ms"]),
        None if current is None else int(current),
        delays_ms,
        dropped,
        late,
        tuple(
            (
                DelayLoss(int(each["delay_ms"]), int(each["dropped"]), int(each["late"])),
                int(each["median_wait_ms"]),
            )
            for each in content["shown"]
        ),
        at_ms,
    )
