"""The browser that tests of pages share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from docs.generator.browser import chromium, find_chromium
from playwright.sync_api import Browser

from backstream.errors import SetupError


@contextmanager
def started() -> Iterator[Browser]:
    """Chromium; without one the test is skipped, but in CI, which has to see the pages, it fails."""
    try:
        find_chromium()
    except SetupError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error).replace("\n\n", "; "))
    with chromium() as browser:
        yield browser
