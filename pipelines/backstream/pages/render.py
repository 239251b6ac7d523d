"""Render pages as HTML: all data is escaped, and a page loads nothing from other origins."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from backstream import formatting
from backstream.charts.line_charts import draw_trend
from backstream.eventtime.instants import DAY_MS, SECOND_MS, instant_text
from backstream.pages import days
from backstream.pages.checks import CheckHistory
from backstream.pages.datasets import Dataset, sum_day_totals
from backstream.pages.filters import Filter
from backstream.pages.policy import policy
from backstream.pages.runs import RunAddress
from backstream.report.templating import template_environment
from backstream.workflow.preview.preview_result import estimate_text
from backstream.workflow.preview.scaling import Estimate

_TEMPLATES = Path(__file__).parent / "templates"
_SHARED = Path(__file__).parents[1] / "report" / "templates"
_RELOAD_S = 10
_MAX_TREND_BOTTOM = 0.5
_MAX_DAYS = 20
"""The days that a preview lists."""


@dataclass(frozen=True, slots=True)
class Page:
    """An HTML page, its content security policy, and its HTTP status."""

    html: str
    policy: str
    status: int = 200


def page(template: str, status: int = 200, **content: Any) -> Page:
    """Return a page from a template.

    Args:
        template: file name of the template.
        status: HTTP status.
        content: variables of the template; if `reload` is true, the browser reloads the page every 10 s; `notice`
            is a notice about what the page cannot show, because a system does not respond.
    """
    common = {"now_ms": int(time.time() * SECOND_MS), "reload_s": _RELOAD_S if content.get("reload") else 0}
    html = _environment().get_template(template).render(common | {"dataset": None, "tab": ""} | content)
    return Page(html, _policy(), status)


def note_page(
    title: str, sentence: str, hint: str = "", kind: str = "none", status: int = 200, notice: str = ""
) -> Page:
    """Return a page with one message: an empty state, a denied access, or an error."""
    return page("note.html", status, title=title, sentence=sentence, hint=hint, kind=kind, notice=notice)


def query(**values: object) -> str:
    """Return a query string without the values that are None."""
    return urlencode({name: value for name, value in values.items() if value is not None})


def listed_query(chosen: Filter, dag_id: str = "", **changes: object) -> str:
    """Return the query string of a filtered list, such as that of its next page or of its CSV file."""
    return query(**{"dag_id": dag_id or None, **chosen.query, **changes})


def _relative_time(value_ms: int, now_ms: int) -> Markup:
    """Return a relative time, with the instant on hover."""
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        instant_text(value_ms // SECOND_MS * SECOND_MS),
        formatting.at_text(value_ms // SECOND_MS * SECOND_MS),
        formatting.ago_text(value_ms, now_ms),
    )


def _completeness_trend(dataset: Dataset) -> tuple[Markup, float] | None:
    """Return completeness of the last published days as a line, and the start of its scale; None for one day."""
    days = [day for day in dataset.recent if day.windows_expected]
    if len(days) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    values = [day.windows_present / day.windows_expected for day in days]
    lowest = min(values)
    label = f"Completeness of {len(days)} days, lowest {formatting.share_text(lowest, 1)}"
    bottom = min(_MAX_TREND_BOTTOM, lowest)
    return draw_trend(values, label, bottom), bottom


def _check_trend(check: CheckHistory) -> Markup | None:
    """Return the share of passing rows of a check by run as a line; None below two runs with counts."""
    if len(check.fitting) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    last = formatting.share_text(check.fitting[-1], 1)
    return draw_trend(check.fitting, f"Passing rows in {len(check.fitting)} runs, newest run {last}")


def _dataset_links(dag_id: str) -> list[tuple[str, str, str]]:
    """Return key, name, and address of the tabs of a dataset."""
    arguments = query(dag_id=dag_id)
    return [
        ("dataset", "Windows", f"dataset?{arguments}"),
        ("watermark", "Watermark", f"watermark?{arguments}"),
        ("checks", "Checks", f"checks?{arguments}"),
        ("runs", "Runs", f"runs?{arguments}"),
        ("reprocess", "Reprocess", f"reprocess?{arguments}"),
    ]


def _iso_day(value_ms: int) -> str:
    return instant_text(value_ms)[:10]


def _estimate(stored: Mapping[str, Any], *, is_change: bool = False) -> str:
    """Return an estimate of a stored preview as text."""
    return estimate_text(Estimate(**stored), is_change=is_change)


@cache
def _style() -> str:
    return "\n".join([(_SHARED / "style.css").read_text("utf-8"), (_TEMPLATES / "pages.css").read_text("utf-8")])


@cache
def _script() -> str:
    return (_TEMPLATES / "pages.js").read_text("utf-8")


@cache
def _policy() -> str:
    return policy(_style(), _script())


@cache
def _environment() -> jinja2.Environment:
    """Return the environment of the run report with the templates and functions of the pages."""
    environment = template_environment()
    environment.loader = jinja2.FileSystemLoader([_TEMPLATES, _SHARED])
    environment.filters |= {
        "estimate": _estimate,
        "iso_day": _iso_day,
        "sentence": formatting.sentence,
        "status": days.STATUS_WORDS.__getitem__,
        "words": lambda text: text.replace("_", " "),
    }
    environment.globals |= {
        "style": Markup(_style()),  # noqa: S704 - our own file
        "script": Markup(_script()),  # noqa: S704 - our own file
        "ago_time": _relative_time,
        "check_trend": _check_trend,
        "day_ms": DAY_MS,
        "day_words": days.describe_day,
        "days_text": days.day_span,
        "duration_text": _duration_range,
        "impact_text": impact_text,
        "instant": instant_text,
        "links": _dataset_links,
        "listed_query": listed_query,
        "max_days": _MAX_DAYS,
        "query": query,
        "run_query": lambda run: RunAddress.from_state(run).query,
        "totals": sum_day_totals,
        "trend": _completeness_trend,
    }
    return environment


def impact_text(impact: Mapping[str, Any]) -> str:
    """Return the result of a dry run: `2 days, about 1,484 events; would replace 44 rows`, and its changes."""
    days, events = formatting.count_of(impact["days"], "day"), formatting.count_of(impact["events"], "event")
    rows = impact["rows_replaced"]
    replaced = f"would replace {formatting.count_of(rows, 'row')}" if rows else "would replace nothing"
    return "; ".join(
        [f"{days}, about {events}", replaced, *([changes] if (changes := impact.get("changes")) else [])]
    )


def _duration_range(seconds: Sequence[float] | None) -> str:
    """Return the lower and the upper estimate of a duration: `1 min 5 s to 3 min 0 s`; `unknown` without one."""
    if seconds is None:
        return "unknown: no run yet"
    low, high = (formatting.seconds_text(value) for value in seconds)
    return low if low == high else f"{low} to {high}"


def time_left_text(seconds_left: Sequence[float] | None) -> str:
    """Return the remaining time of a run: `1 min to 3 min left`."""
    if seconds_left is None:
        return "time left unknown"
    low, high = (formatting.seconds_text(seconds) for seconds in seconds_left)
    return f"{low} left" if low == high else f"{low} to {high} left"
