"""The pictures of the documentation: February 2013 of real flights, published twice, as a browser shows it.

`python -m demo.tour` prepares the flights, runs what is missing in a home of its own, writes `docs/images/`.
Pictures of the pages inside Airflow are those of `demo.pictures`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from backstream import steps
from backstream.cli.runs import carry_out
from backstream.core.folders import HOME_VARIABLE, Home
from backstream.core.instants import instant_ms
from backstream.core.plan import Mode, Plan
from backstream.definition.load import load
from backstream.steps.reports import Form
from demo.flights import prepare
from demo.settings import CHECKOUT

IMAGES = CHECKOUT / "docs" / "images"
BROWSERS = (Path("/usr/bin/chromium"), Path("/usr/bin/chromium-browser"), Path("/usr/bin/google-chrome"))
SINCE_MS, UNTIL_MS = instant_ms("2013-02-01", "since"), instant_ms("2013-03-01", "until")
REVISIONS = (
    ("live", "what the stream had published"),
    ("final", "late departures belong in their hours"),
)
"""Which value is published, and why: the second run changes what the first had said."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A part of the report by its CSS selector, in a window of so many pixels; None: the top of the page."""

    name: str
    selector: str | None
    width: int
    height: int = 860
    scheme: str = "light"


PICTURES = (
    Picture("report", None, 1280, 940),
    Picture("report-dark", None, 1280, 940, "dark"),
    Picture("report-phone", None, 400, 1100),
    Picture("report-windows", "#windows", 1280),
    Picture("report-lateness", "#lateness", 1280),
    Picture("report-checks", "#checks", 1024),
    Picture("report-changed", "#changed", 1280),
    Picture("report-records", "#records", 1024),
    Picture("report-run", "#run", 1280),
)


def main() -> int:
    """Make all pictures; the exit status is 0 when they are there."""
    home = Home(Path(os.environ.get(HOME_VARIABLE) or CHECKOUT / ".backstream" / "pictures").resolve())
    os.environ[HOME_VARIABLE] = str(home.path)
    prepare(home.path, progress=lambda step: print(f"flights: {step}"))
    html = steps.report_text(_published(home), Form.HTML)
    # Where this machine has its home is not for a picture.
    html = html.replace(str(home.path), f"${HOME_VARIABLE}")
    IMAGES.mkdir(exist_ok=True)
    with _browser() as browser:
        for picture in PICTURES:
            print(f"wrote {_taken(browser, html, picture).relative_to(CHECKOUT)}")
    return 0


def _published(home: Home) -> Plan:
    """The run of the last revision; each that has not ended yet is run, in the order in which they are told."""
    revisions = [_revision(home, publish, reason) for publish, reason in REVISIONS]
    return revisions[-1]


def _revision(home: Home, publish: str, reason: str) -> Plan:
    definition = _definition(home, publish)
    if done := _newest(home, load(definition).definition_hash):
        return done
    span_ms = (SINCE_MS, UNTIL_MS)
    plan = steps.plan_run(definition, *span_ms, mode=Mode.REPLAY, trigger="cli", reason=reason, home=home)
    carry_out(plan)
    return plan


def _definition(home: Home, publish: str) -> Path:
    """The demo's definition, publishing another value; in one file, because a dataset belongs to one."""
    text = (CHECKOUT / "pipelines" / "definitions" / "flights.toml").read_text(encoding="utf-8")
    file = home.path / "definitions" / "flights.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.replace('publish = "final"', f'publish = "{publish}"'), encoding="utf-8")
    return file


def _newest(home: Home, definition_hash: str) -> Plan | None:
    for file in (home.path / "runs" / "flights").glob("*/plan.json"):
        plan = Plan.read(file)
        if plan.definition_hash == definition_hash and plan.folder.publication.exists():
            return plan
    return None


@contextmanager
def _browser() -> Iterator[Browser]:
    """Debian's Chromium where there is one, else the one that Playwright has installed."""
    with sync_playwright() as playwright:
        found = next((path for path in BROWSERS if path.exists()), None)
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def _taken(browser: Browser, html: str, picture: Picture) -> Path:
    """One picture, in a page of its own without scripts."""
    file = IMAGES / f"{picture.name}.png"
    page = browser.new_page(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.scheme == "dark" else "light",
        java_script_enabled=False,
    )
    page.set_content(html)
    _shot(page, picture, file)
    page.close()
    return file


def _shot(page: Page, picture: Picture, file: Path) -> None:
    if picture.selector is None:
        page.screenshot(path=file)
    else:
        page.locator(picture.selector).screenshot(path=file)


if __name__ == "__main__":
    sys.exit(main())
