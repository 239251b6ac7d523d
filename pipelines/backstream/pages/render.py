"""Pages as HTML: whatever comes from data is escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from backstream.eventtime.instants import DAY_MS, SECOND_MS, instant_text
from backstream.pages import days
from backstream.pages.checks import CheckHistory
from backstream.pages.datasets import Dataset, is_published_run, sum_day_totals
from backstream.report import formatting
from backstream.report.line_charts import draw_trend
from backstream.report.templating import template_environment

_TEMPLATES = Path(__file__).parent / "templates"
_SHARED = Path(__file__).parents[1] / "report" / "templates"
_RELOAD_S = 10
_LOWEST_TREND = 0.5


@dataclass(frozen=True, slots=True)
class Page:
    """An HTML page and the policy under which a browser may show it."""

    html: str
    policy: str
    status: int = 200


def page(template: str, status: int = 200, **content: Any) -> Page:
    """A page from a template.

    Args:
        template: its file.
        status: of the answer.
        content: what it shows; `reload` true has the browser ask again after a while.
    """
    common = {"now_ms": int(time.time() * SECOND_MS), "reload_s": _RELOAD_S if content.get("reload") else 0}
    html = _environment().get_template(template).render(common | {"dataset": None, "tab": ""} | content)
    return Page(html, _policy(), status)


def note_page(title: str, sentence: str, hint: str = "", kind: str = "none", status: int = 200) -> Page:
    """A page that says one thing: that there is nothing (yet), that it is not allowed, or what went wrong."""
    return page("note.html", status, title=title, sentence=sentence, hint=hint, kind=kind)


def query(**values: object) -> str:
    """A query string; what is None is left out."""
    return urlencode({name: value for name, value in values.items() if value is not None})


def relative_time(value_ms: int, now_ms: int) -> Markup:
    """How long ago, with the instant on hover."""
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        instant_text(value_ms // SECOND_MS * SECOND_MS),
        formatting.at_text(value_ms // SECOND_MS * SECOND_MS),
        formatting.ago_text(value_ms, now_ms),
    )


def completeness_trend(dataset: Dataset) -> tuple[Markup, float] | None:
    """Completeness of the last published days as a line, and the share at its bottom; None below two days."""
    days = [each for each in dataset.recent if each.windows_expected]
    if len(days) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    values = [each.windows_present / each.windows_expected for each in days]
    least = min(values)
    said = f"Completeness of {len(days)} days, lowest {formatting.share_text(least, 1)}"
    bottom = min(_LOWEST_TREND, least)
    return draw_trend(values, said, bottom), bottom


def check_trend(check: CheckHistory) -> Markup | None:
    """The share that fits a check over its runs as a line; None where nothing was counted, or only once."""
    if len(check.fitting) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    last = formatting.share_text(check.fitting[-1], 1)
    return draw_trend(check.fitting, f"Share that fits in {len(check.fitting)} runs, in the newest {last}")


def dataset_links(dag_id: str) -> list[tuple[str, str, str]]:
    """The tabs of a dataset: key, name and address."""
    own = query(dag_id=dag_id)
    return [
        ("dataset", "Windows", f"dataset?{own}"),
        ("watermark", "Watermark", f"watermark?{own}"),
        ("checks", "Checks", f"checks?{own}"),
        ("runs", "Runs", f"runs?{own}"),
        ("reprocess", "Reprocess", f"reprocess?{own}"),
    ]


def _iso_day(value_ms: int) -> str:
    return instant_text(value_ms)[:10]


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
    """That of the run report, with templates and words of the pages added."""
    made = template_environment()
    made.loader = jinja2.FileSystemLoader([_TEMPLATES, _SHARED])
    made.filters |= {"iso_day": _iso_day, "sentence": formatting.sentence, "status": days.STATUS_WORDS.__getitem__}
    made.globals |= {
        "style": Markup(_style()),  # noqa: S704 - our own file
        "script": Markup(_script()),  # noqa: S704 - our own file
        "ago_time": relative_time,
        "check_trend": check_trend,
        "day_ms": DAY_MS,
        "day_words": days.describe_day,
        "days_text": days.day_span,
        "is_published": is_published_run,
        "links": dataset_links,
        "query": query,
        "totals": sum_day_totals,
        "trend": completeness_trend,
    }
    return made


def time_left_text(seconds_left: Sequence[float] | None) -> str:
    """How long a run will still take: `1 to 3 min left`."""
    if seconds_left is None:
        return "time left unknown"
    low, high = (formatting.seconds_text(each) for each in seconds_left)
    return f"{low} left" if low == high else f"{low} to {high} left"


def policy(style: str, script: str = "") -> str:
    """A content security policy under which nothing runs and nothing is loaded but this style and this script.

    Args:
        style: the text of the page's one style element; empty: any inline style, for reports of other versions.
        script: the text of its one script element; empty: none may run.
    """
    styles = f"'{_hash(style)}'" if style else "'unsafe-inline'"
    scripts = f"'{_hash(script)}'" if script else "'none'"
    return (
        f"default-src 'none'; style-src {styles}; script-src {scripts}; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
