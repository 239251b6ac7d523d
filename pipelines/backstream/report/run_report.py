"""The run report: one self-contained HTML page of what a run was asked, what it found, and what it published.

The page needs no script and refers to nothing outside itself, so that it can be mailed, archived and opened
years later. It is written for a failed run too: that is the one people open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

import backstream
from backstream.core.audit import Audit, Outcome
from backstream.core.manifest import Manifest
from backstream.core.plan import Mode, Plan
from backstream.core.publication import Publication
from backstream.definition.model import Definition
from backstream.report import charts, completeness, failing, figures, lateness, settings, words

TEMPLATES = Path(__file__).parent / "templates"

_DAY_GRID = charts.Frame(left=46, top=6, width=348, height=216)
_WIDE_HEIGHT, _NARROW_HEIGHT = 230, 200
_WIDE_WIDTH, _NARROW_WIDTH = 1_080, 292
_WIDE_ROOM, _NARROW_ROOM = 112, 31
_STRIP_WIDE_ROOM, _STRIP_NARROW_ROOM = 372, 62  # a year of days where there is room
_STRIP_HEIGHT, _STRIP_ROW, _LETTER = 108, 22, 6.6
_GAPS_SHOWN, _FILES_SHOWN = 8, 50
_NO_VERDICT = "none"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart twice: one is shown where there is room, the other on a phone."""

    wide: Markup
    narrow: Markup


def render(
    plan: Plan,
    manifests: Sequence[Manifest],
    audit: Audit | None,
    frame: pd.DataFrame | None,
    publication: Publication | None,
    definition: Definition,
) -> str:
    """The page as HTML.

    Args:
        plan: what was to be done.
        manifests: what the finished chunks left; none is needed.
        audit: the gate's answer; None when the run ended before it.
        frame: the audit frame (columns of `quality.frame.WINDOW_COLUMNS`); None as for `audit`.
        publication: what was committed; None when nothing was.
        definition: the definition that the run used.
    """
    windows = None if frame is None else _in_milliseconds(frame)
    found = figures.reconciliation(manifests, windows, definition)
    chunks = figures.chunk_rows(plan, manifests)
    unfinished = sum(chunk.manifest is None for chunk in chunks)
    attention = [check for check in _checks(audit) if check.outcome is not Outcome.PASS]
    page = {
        "plan": plan,
        "definition": definition,
        "publication": publication,
        "published": settings.published_text(publication) if publication else "",
        "not_published": settings.not_published(plan, audit, unfinished),
        "audit": audit,
        "verdict": str(audit.verdict) if audit else _NO_VERDICT,
        "summary": words.sentence(audit.summary if audit else settings.not_published(plan, None, unfinished)),
        "attention": attention,
        "opened": next((check for check in attention if check.failing), None),
        "passed": [check for check in _checks(audit) if check.outcome is Outcome.PASS],
        "totals": None if windows is None else figures.totals(windows),
        "found": found,
        "fate_bar": _fate_bar(found),
        "is_replay": plan.mode is Mode.REPLAY,
        "chunks": chunks,
        "inputs": figures.input_figures(plan),
        "asked": settings.asked(plan, definition),
        "snapshots": figures.snapshot_texts(publication),
        "finished_at": max((each.finished_at for each in manifests), default=""),
        "version": backstream.__version__,
        "gaps_shown": _GAPS_SHOWN,
        "files_shown": _FILES_SHOWN,
        **_charts(plan, definition, windows),
    }
    return _environment().get_template("run_report.html").render(page)


def _charts(plan: Plan, definition: Definition, frame: pd.DataFrame | None) -> dict[str, Any]:
    """The charts over the windows; empty without any."""
    if frame is None or frame.empty:
        return {"day_grids": (), "strip": None, "levels": (), "gaps": [], "late": None, "late_drawn": None}
    shown = completeness.Shown(plan.range, definition.unit_ms)
    grids = completeness.by_day_and_hour(frame, shown)
    strips = None if grids else _strips(frame, shown)
    late = [
        lateness.late_chart(frame, plan.range, definition.unit_ms, definition.quality.late_ratio, room)
        for room in (_WIDE_ROOM, _NARROW_ROOM)
    ]
    return {
        "day_grids": [
            (name, came, charts.heat_map(grid, _DAY_GRID))
            for (name, came), grid in zip(figures.delivered(frame).items(), grids, strict=bool(grids))
        ],
        "strip": _drawn_strips(strips) if strips else None,
        "levels": completeness.levels_of(grids or strips or ()),
        "gaps": completeness.gaps(frame),
        "late": late[0],
        "late_bars": [each.bar_words for each in late if each],
        "late_drawn": _drawn_bars(*late),
    }


def _strips(frame: pd.DataFrame, shown: completeness.Shown) -> tuple[charts.HeatGrid, charts.HeatGrid] | None:
    wide, narrow = (completeness.by_time(frame, shown, room) for room in (_STRIP_WIDE_ROOM, _STRIP_NARROW_ROOM))
    return (wide, narrow) if wide and narrow else None


def _drawn_strips(strips: tuple[charts.HeatGrid, charts.HeatGrid]) -> Drawn:
    """Rows high enough for the title of their axis, and to the left as much as the names need."""
    rows = strips[0].rows
    height = max(_STRIP_ROW * rows, _STRIP_HEIGHT)
    left = 34 + _LETTER * max(len(label) for _, label in strips[0].y.ticks)
    return Drawn(
        charts.heat_map(strips[0], charts.Frame(left, 6, _WIDE_WIDTH + 58 - left, height)),
        charts.heat_map(strips[1], charts.Frame(left, 6, _NARROW_WIDTH + 58 - left, height)),
    )


def _drawn_bars(wide: lateness.LateChart | None, narrow: lateness.LateChart | None) -> Drawn | None:
    if wide is None or narrow is None:
        return None
    return Drawn(
        charts.bar_chart(wide.chart, charts.Frame(58, 14, _WIDE_WIDTH, _WIDE_HEIGHT)),
        charts.bar_chart(narrow.chart, charts.Frame(58, 14, _NARROW_WIDTH, _NARROW_HEIGHT)),
    )


def _fate_bar(found: figures.Reconciliation) -> Markup | None:
    whole = found.total.total
    parts = [
        (
            f"fate-{fate}",
            count / whole,
            f"{words.counted(count, 'record')} {name}: {words.share_text(count, whole)}",
        )
        for fate, count, name in figures.fate_shares(found.total)
    ]
    return charts.share_bar(parts, "Fates of all records read") if parts else None


def _checks(audit: Audit | None) -> tuple[Any, ...]:
    return figures.by_gravity(audit) if audit else ()


def _in_milliseconds(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with instants in one unit, whatever the file it came from held them in."""
    instants = {name: frame[name].dt.as_unit("ms") for name in ("window_start", "window_end")}
    return frame.assign(**instants)


def _environment() -> jinja2.Environment:
    """Escapes everything that is not marked as safe, and refuses names that do not exist."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "at": words.at_text,
        "iso": words.iso_text,
        "minute": words.minute_text,
        "bytes": words.bytes_text,
        "count": words.count_text,
        "day": words.day_text,
        "duration": words.duration_words,
        "seconds": words.seconds_text,
        "groups": failing.failing_groups,
    }
    environment.globals |= {
        "counted": words.counted,
        "share": words.share_text,
        "limit": words.limit_text,
        "fates": [(str(fate), figures.FATE_WORDS[fate]) for fate in figures.FATES],
        "aggregates": figures.aggregate_texts,
        "window_text": figures.window_text,
        "summed": figures.summed_text,
        "fate_shares": figures.fate_shares,
        "span": completeness.range_words,
    }
    return environment
