"""Jinja as every page takes it: all not marked as safe is escaped, names that do not exist are refused."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import jinja2

from backstream.core.errors import SpecError
from backstream.core.instants import epoch_ms, instant_ms
from backstream.core.intervals import Interval
from backstream.report import completeness, failing, figures, words

TEMPLATES = Path(__file__).parent / "templates"


def environment() -> jinja2.Environment:
    """Templates of this package, with the words of `report.words` as filters."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "at": words.at_text,
        "iso": words.iso_text,
        "minute": words.minute_text,
        "bytes": words.bytes_text,
        "count": words.count_text,
        "day": words.day_text,
        "duration": words.duration_words,
        "seconds": words.seconds_text,
        "change": words.change_text,
        "ms": instant_of,
        "second": words.second_text,
        "value": words.value_text,
        "groups": failing.failing_groups,
    }
    made.globals |= {
        "counted": words.counted,
        "share": words.share_text,
        "limit": words.limit_text,
        "ago": words.ago_text,
        "off_by": words.off_by_text,
        "span_of": lambda since_ms, until_ms: completeness.range_words(Interval(since_ms, until_ms)),
        "fates": [(str(fate), figures.FATE_WORDS[fate]) for fate in figures.FATES],
        "aggregates": figures.aggregate_texts,
        "window_text": figures.window_text,
        "summed": figures.summed_text,
        "fate_shares": figures.fate_shares,
        "span": completeness.range_words,
    }
    return made


def instant_of(value: datetime | str) -> int | None:
    """Epoch milliseconds of what a table or a file holds; None for text that is no instant."""
    if isinstance(value, datetime):
        return epoch_ms(value)
    try:
        return instant_ms(value, "instant")
    except SpecError:
        return None
