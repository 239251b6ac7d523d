"""Read the visible text of a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any


class _Page(HTMLParser):
    """Parser that collects the text of a page and rejects unbalanced tags."""

    VOID = frozenset({"meta", "rect", "line", "br", "img"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        del attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        """Ignore a tag that closes itself."""

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag
        if tag != "strong":
            self.words.append(" ")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)


def text(html: str) -> str:
    """Return the visible text with single spaces."""
    return " ".join("".join(_Page(html).words).split())


def section(html: str, name: str) -> str:
    return html.split(f'<section id="{name}"')[1].split("</section>", maxsplit=1)[0]


def table_row(html: str, first_cell: str) -> list[str]:
    """Return the cells of the first table row with a given first cell."""
    for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL):
        cells = [" ".join(cell.split()) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)]
        if cells and cells[0] == first_cell:
            return cells
    return []
