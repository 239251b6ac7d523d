"""A browser without a window, for pictures of pages and for the tests of them."""

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
    """The program of the Chromium that is installed.

    Raises:
        SetupError: when none is on the PATH.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        msg = f"no Chromium on PATH; looked for {', '.join(NAMES)}\n\nhint: bin/setup chromium"
        raise SetupError(msg)
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """The installed Chromium, started.

    Raises:
        SetupError: when none is on the PATH.
    """
    program = find_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root, as in a container, Chromium does not start within its sandbox.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
