"""Pictures of the pages inside Airflow: `python -m demo.pictures --url .. --password .. --to FOLDER`.

For a tour and for looking at changes: each page at three widths, in light and dark. Needs Chromium
(`bin/setup chromium` installs one) and the extra `dev`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from playwright.sync_api import Browser, FloatRect

from backstream.errors import BackstreamError, SetupError
from demo.browser import chromium
from demo.settings import USER

WIDTHS = (400, 1024, 1600)
SCHEMES = ("light", "dark")
_HEIGHT = 900


def pages(dag_id: str, day: str) -> dict[str, str]:
    """The name and the address of each page that is worth a picture."""
    own = {"dag_id": dag_id}
    return {
        "overview": "overview",
        "windows": f"dataset?{urlencode(own)}",
        "day": f"day?{urlencode(own | {'day': day})}",
        "watermark": f"watermark?{urlencode(own)}",
        "checks": f"checks?{urlencode(own)}",
        "runs": f"runs?{urlencode(own)}",
        "reprocess": f"reprocess?{urlencode(own | {'since': day})}",
    }


def take(
    url: str,
    credentials: Mapping[str, str],
    wanted: Mapping[str, str],
    folder: Path,
    widths: Sequence[int] = WIDTHS,
    schemes: Sequence[str] = SCHEMES,
    heights: tuple[int, int | None] = (_HEIGHT, None),
) -> list[Path]:
    """Take a picture of each page at each width in each scheme, and return the files.

    `heights` are the least and the most pixels of a picture; None: to the bottom of the page.

    Raises:
        SetupError: when there is no Chromium, or Airflow lets nobody in with these credentials.
    """
    token = _token(url, credentials)
    folder.mkdir(parents=True, exist_ok=True)
    views = [(width, scheme) for scheme in schemes for width in widths]
    with chromium() as browser:
        return [
            file
            for width, scheme in views
            for file in _taken(browser, (url, token), wanted, (width, scheme, *heights), folder)
        ]


def _taken(
    browser: Browser,
    airflow: tuple[str, str],
    wanted: Mapping[str, str],
    view: tuple[int, Any, int, int | None],
    folder: Path,
) -> list[Path]:
    (url, token), (width, scheme, least, most) = airflow, view
    context = browser.new_context(viewport={"width": width, "height": least}, color_scheme=scheme)
    context.add_cookies([{"name": "_token", "value": token, "url": url}])
    page, files = context.new_page(), []
    for name, address in wanted.items():
        page.goto(f"{url}/backstream/{address}")
        files.append(folder / f"{name}-{width}-{scheme}.png")
        whole = int(page.evaluate("document.documentElement.scrollHeight"))
        clip = FloatRect(x=0, y=0, width=width, height=min(whole, most or whole))
        page.screenshot(path=files[-1], full_page=True, clip=clip)
    context.close()
    return files


def _token(url: str, credentials: Mapping[str, str]) -> str:
    answer = httpx.post(f"{url}/auth/token", json=dict(credentials), timeout=60, trust_env=False)
    if not answer.is_success:
        msg = f"Airflow at {url} lets nobody in as {credentials['username']!r}: it answered {answer.status_code}"
        raise SetupError(msg)
    return str(answer.json()["access_token"])


def main() -> int:
    """Take the pictures; the exit status is 0 when there are some."""
    parser = argparse.ArgumentParser(description="Pictures of the pages inside a running Airflow.")
    parser.add_argument("--url", required=True, help="such as http://127.0.0.1:8080")
    parser.add_argument("--user", default=USER)
    parser.add_argument("--password", required=True)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--dag-id", default="backfill_flights")
    parser.add_argument("--day", default="2013-02-08", help="the day whose windows are shown")
    asked = parser.parse_args()
    try:
        credentials = {"username": asked.user, "password": asked.password}
        taken = take(asked.url.rstrip("/"), credentials, pages(asked.dag_id, asked.day), asked.to)
    except BackstreamError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(taken)} pictures in {asked.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
