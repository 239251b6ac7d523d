"""Start a headless browser, for screenshots of pages and for tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backstream.errors import SetupError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str:
    """Return the path of the installed Chromium.

    Raises:
        SetupError: when PATH has no Chromium.
    """
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        msg = f"no Chromium on PATH; looked for {', '.join(NAMES)}\n\nhint: bin/setup chromium"
        raise SetupError(msg)
    return program


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the installed Chromium, and close it after the block.

    Raises:
        SetupError: when PATH has no Chromium.
    """
    program = find_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium cannot start with its sandbox for the root user, e.g., in a container.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
