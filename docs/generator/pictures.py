"""Take screenshots of the pages inside Airflow.

The command is `python -m docs.generator.pictures --url .. --password .. --to FOLDER`.
They are for the tour and for the review of changes: each page at three widths, in light and dark. The command
needs Chromium (`bin/setup chromium` installs it) and the extra `dev`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from demo.settings import USER
from playwright.sync_api import Browser, FloatRect

from backstream.errors import BackstreamError, SetupError
from docs.generator.browser import chromium

WIDTHS = (400, 1024, 1600)
SCHEMES = ("light", "dark")
_HEIGHT = 900


def pages(dag_id: str, day: str) -> dict[str, str]:
    """Return the name and the address of each page."""
    dataset = {"dag_id": dag_id}
    return {
        "overview": "overview",
        "windows": f"dataset?{urlencode(dataset)}",
        "day": f"day?{urlencode(dataset | {'day': day})}",
        "watermark": f"watermark?{urlencode(dataset)}",
        "checks": f"checks?{urlencode(dataset)}",
        "runs": f"runs?{urlencode(dataset)}",
        "reprocess": f"reprocess?{urlencode(dataset | {'since': day})}",
    }


def take(
    url: str,
    credentials: Mapping[str, str],
    addresses: Mapping[str, str],
    folder: Path,
    widths: Sequence[int] = WIDTHS,
    schemes: Sequence[str] = SCHEMES,
    heights: tuple[int, int | None] = (_HEIGHT, None),
) -> list[Path]:
    """Take a screenshot of each page at each width in each scheme, and return the files.

    `heights` are the minimum and the maximum height in pixels; None: the whole page.

    Raises:
        SetupError: when Chromium is not installed, or Airflow rejects the credentials.
    """
    token = _token(url, credentials)
    folder.mkdir(parents=True, exist_ok=True)
    views = [(width, scheme) for scheme in schemes for width in widths]
    with chromium() as browser:
        return [
            file
            for width, scheme in views
            for file in _take_view(browser, (url, token), addresses, (width, scheme, *heights), folder)
        ]


def _take_view(
    browser: Browser,
    airflow: tuple[str, str],
    addresses: Mapping[str, str],
    view: tuple[int, Any, int, int | None],
    folder: Path,
) -> list[Path]:
    (url, token), (width, scheme, min_height, max_height) = airflow, view
    context = browser.new_context(viewport={"width": width, "height": min_height}, color_scheme=scheme)
    context.add_cookies([{"name": "_token", "value": token, "url": url}])
    page, files = context.new_page(), []
    for name, address in addresses.items():
        page.goto(f"{url}/backstream/{address}")
        files.append(folder / f"{name}-{width}-{scheme}.png")
        page_height = int(page.evaluate("document.documentElement.scrollHeight"))
        clip = FloatRect(x=0, y=0, width=width, height=min(page_height, max_height or page_height))
        page.screenshot(path=files[-1], full_page=True, clip=clip)
    context.close()
    return files


def _token(url: str, credentials: Mapping[str, str]) -> str:
    answer = httpx.post(f"{url}/auth/token", json=dict(credentials), timeout=60, trust_env=False)
    if not answer.is_success:
        msg = f"Airflow at {url} rejects the login of {credentials['username']!r}: status {answer.status_code}"
        raise SetupError(msg)
    return str(answer.json()["access_token"])


def main() -> int:
    """Take the screenshots, and return the exit status."""
    parser = argparse.ArgumentParser(description="Take screenshots of the pages inside a running Airflow.")
    parser.add_argument("--url", required=True, help="address of Airflow, e.g., http://127.0.0.1:8080")
    parser.add_argument("--user", default=USER)
    parser.add_argument("--password", required=True)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--dag-id", default="backfill_flights")
    parser.add_argument("--day", default="2013-02-08", help="day of the page with windows, e.g., 2013-02-08")
    options = parser.parse_args()
    try:
        credentials = {"username": options.user, "password": options.password}
        files = take(options.url.rstrip("/"), credentials, pages(options.dag_id, options.day), options.to)
    except BackstreamError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(files)} screenshots in {options.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
