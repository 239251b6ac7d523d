"""The page of a run after each fault, in a real browser: it says why nothing was published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.chromium import started

pytestmark = pytest.mark.slow
PUBLISHED = {"always nothing", "restatement nothing to ask", "warn nothing to ask"}

ASKED_AGAIN = "always approve after a rejection"
"""Its second question is open."""


def test_the_page_of_each_fault_says_what_is_missing(ask: Callable[..., Any], tmp_path: Path) -> None:
    pages = ask("pages", tmp_path)
    with started() as browser:
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        for name, (status, file, error) in pages.items():
            page.goto(f"file://{file}")
            text = " ".join(page.inner_text("main").split())
            assert status == 200
            assert ("Published" in text) is (name in PUBLISHED), name
            if name == ASKED_AGAIN:
                assert "Waits for approval" in text
            elif name not in PUBLISHED:
                first_line = error.partition("\n")[0]
                assert first_line in text, (name, text)
                assert "Failed" in text or "Refused" in text, (name, text)
    assert errors == []
    assert len(pages) - len(PUBLISHED) >= 8
