"""Create the Jinja environment of reports and pages: it escapes all data and rejects undefined names."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from backstream import formatting
from backstream.charts import completeness_map
from backstream.errors import SpecError
from backstream.eventtime.instants import epoch_ms, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.report import failing_rows, figures
from backstream.report.run_context import largest_changes
from backstream.text import visible_line

_TEMPLATES = Path(__file__).parent / "templates"
_MAX_TEXT = 2_000
"""The most characters of one text on a page."""


def template_environment() -> jinja2.Environment:
    """Return an environment for the templates of this package, with the functions of `formatting` as filters."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_show_hidden,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "at": formatting.at_text,
        "iso": formatting.iso_text,
        "minute": formatting.minute_text,
        "bytes": formatting.bytes_text,
        "count": formatting.count_text,
        "day": formatting.day_text,
        "duration": formatting.duration_words,
        "seconds": formatting.seconds_text,
        "change": formatting.change_text,
        "ms": _parse_instant,
        "second": formatting.second_text,
        "value": formatting.value_text,
        "lines": _lines,
        "failing_rows": failing_rows.list_failing_rows,
    }
    environment.globals |= {
        "counted": formatting.count_of,
        "share": formatting.share_text,
        "limit": formatting.limit_text,
        "ago": formatting.ago_text,
        "deviation": formatting.deviation_text,
        "span_of": lambda since_ms, until_ms: completeness_map.range_words(Interval(since_ms, until_ms)),
        "fate_columns": figures.fate_columns,
        "aggregates": figures.aggregate_texts,
        "window_text": figures.window_text,
        "accounting_text": figures.accounting_text,
        "fate_shares": figures.fate_shares,
        "largest_changes": largest_changes,
        "span": completeness_map.range_words,
    }
    return environment


def _show_hidden(value: object) -> object:
    """Return a value of a template as one line with visible characters; markup of backstream unchanged."""
    is_data = isinstance(value, str) and not isinstance(value, Markup)
    return visible_line(value, _MAX_TEXT) if is_data else value  # type: ignore[arg-type]


def _lines(text: str) -> Markup:
    """Return a text of several lines, such as an error with its hint."""
    return escape("\n".join(visible_line(line, _MAX_TEXT) for line in text.splitlines()))


def _parse_instant(value: datetime | str) -> int | None:
    """Return epoch milliseconds of a value from a table or file; None for text that is no instant."""
    if isinstance(value, datetime):
        return epoch_ms(value)
    try:
        return instant_ms(value, "instant")
    except SpecError:
        return None
