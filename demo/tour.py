"""The pictures of the documentation: February 2013 of real flights, published twice, as a browser shows it.

`python -m demo.tour` prepares the flights, runs what is missing in a home of its own, starts a real Airflow over
it, and writes `docs/images/`: the run report, and the pages inside Airflow.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Browser, Page

from backstream import workflow
from backstream.cli.engine import advise
from backstream.cli.run import run_plan
from backstream.definition.loader import load_definition
from backstream.eventtime.instants import instant_ms
from backstream.runs.home import DEFINITIONS_VARIABLE, HOME_VARIABLE, Home
from backstream.runs.plan import Mode, Plan
from backstream.text import ReportFormat
from backstream.workflow.execution import SparkStart
from demo.browser import chromium
from demo.flights import prepare
from demo.pictures import pages, take
from demo.settings import CHECKOUT, USER
from demo.stack import Stack

IMAGES = CHECKOUT / "docs" / "images"
SINCE, UNTIL = "2013-02-01", "2013-03-01"
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


DAG_ID, DAY = "backfill_flights", "2013-02-08"
PAGES = ("overview", "windows", "day", "watermark", "checks", "reprocess")
"""Those of the pages inside Airflow that the tour shows."""
PAGE_WIDTH, PAGE_HEIGHTS = 1280, (200, 1000)


def main() -> int:
    """Make all pictures; the exit status is 0 when they are there."""
    home = Home(Path(os.environ.get(HOME_VARIABLE) or CHECKOUT / ".backstream" / "pictures").resolve())
    os.environ[HOME_VARIABLE] = str(home.path)
    prepare(home.path, progress=lambda step: print(f"flights: {step}"))
    html = workflow.report_text(_published(home), ReportFormat.HTML)
    advise(str(home.path / "definitions" / "flights.toml"), SINCE, UNTIL)  # kept for the page of the watermark
    # Where this machine has its home is not for a picture.
    html = html.replace(str(home.path), f"${HOME_VARIABLE}")
    IMAGES.mkdir(exist_ok=True)
    with chromium() as browser:
        for picture in PICTURES:
            _told(_taken(browser, html, picture))
    _take_pages(home)
    return 0


def _told(file: Path) -> None:
    print(f"wrote {file.relative_to(CHECKOUT)}")


def _take_pages(home: Home) -> None:
    """A picture of each page, from an Airflow that was started for it over the same home."""
    wanted = {name: address for name, address in pages(DAG_ID, DAY).items() if name in PAGES}
    settings = {DEFINITIONS_VARIABLE: str(home.path / "definitions")}
    started_at = datetime.now(UTC)
    with Stack(home.path, settings=settings) as stack, tempfile.TemporaryDirectory() as folder:
        api = stack.start()
        stack.wait_until(f"knows the DAG {DAG_ID}", lambda: api.has_dag(DAG_ID, started_at))
        credentials = {"username": USER, "password": stack.password}
        views = [PAGE_WIDTH], ["light"], PAGE_HEIGHTS
        taken = take(stack.place.url, credentials, wanted, Path(folder), *views)
        for name, file in zip(wanted, taken, strict=True):
            _told(file.replace(IMAGES / f"page-{name}.png"))


def _published(home: Home) -> Plan:
    """The run of the last revision; each that has not ended yet is run, in the order in which they are told."""
    revisions = [_revision(home, publish, reason) for publish, reason in REVISIONS]
    return revisions[-1]


def _revision(home: Home, publish: str, reason: str) -> Plan:
    definition = _definition(home, publish)
    if done := _newest(home, load_definition(definition).definition_hash):
        return done
    span_ms = (instant_ms(SINCE, "since"), instant_ms(UNTIL, "until"))
    spark = SparkStart(definition)
    plan = workflow.plan_run(definition, *span_ms, mode=Mode.REPLAY, trigger="cli", reason=reason, home=home)
    run_plan(plan, spark)
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
