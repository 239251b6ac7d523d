"""Test that characters without a shape are visible on pages, in charts, and in messages."""

from __future__ import annotations

import pytest

from backstream.charts.svg import share_bar
from backstream.report.failing_rows import FailingRow
from backstream.report.templating import template_environment
from backstream.text import visible_text

REVERSED = "flights\u202efdp.exe"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zürich, 東京 ✓", "Zürich, 東京 ✓"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        (REVERSED, "flights<U+202E>fdp.exe"),
        ("a\u2066b\u2069", "a<U+2066>b<U+2069>"),
        ("zero\u200bwidth\ufeff", "zero<U+200B>width<U+FEFF>"),
        ("\x1b[31mred\x00", "<U+001B>[31mred<U+0000>"),
        ("line\u2028separator", "line<U+2028>separator"),
    ],
)
def test_hidden_characters_are_shown_as_code_points(text: str, shown: str) -> None:
    assert visible_text(text) == shown


def test_templates_show_them_in_data_and_leave_markup_of_ours() -> None:
    page = template_environment().from_string("<p>{{ name }}</p>{{ 1 }}")
    assert page.render(name=REVERSED) == "<p>flights&lt;U+202E&gt;fdp.exe</p>1"


def test_charts_and_messages_show_them() -> None:
    chart = share_bar([("on-time", 1.0, REVERSED)], REVERSED)
    row = FailingRow(REVERSED, None, None, "1", "2", "")
    assert "\u202e" not in chart
    assert str(row) == "flights<U+202E>fdp.exe: expected 1, found 2"
