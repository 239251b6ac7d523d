"""Take the screenshots of the documentation: February 2013 of real flights, published twice.

`python -m docs.generator.tour` prepares the flights, publishes them in a home of its own, and starts an Airflow.
It writes the run report and the pages inside Airflow to `docs/images/`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from demo.flights import prepare
from demo.settings import CHECKOUT, USER
from demo.stack import Stack
from playwright.sync_api import Browser, Page

from backstream.cli.engine import advise
from backstream.cli.run import run_plan
from backstream.definition.loader import load_definition
from backstream.eventtime.instants import SECOND_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.runs.requests import RunRequest
from backstream.text import ReportFormat
from backstream.variables import DEFINITIONS_VARIABLE, HOME_VARIABLE
from backstream.workflow.plan.impact import estimate_impact
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.preview.preview import preview_dry_run
from backstream.workflow.report import report_text
from backstream.workflow.runners import SparkStart
from backstream.workflow.verify import verify_run
from docs.generator.browser import chromium
from docs.generator.pictures import pages, take

IMAGES = CHECKOUT / "docs" / "images"
SINCE, UNTIL = "2013-02-01", "2013-03-01"
REVISIONS = (
    ("live", "values of the live stream"),
    ("final", "late departures belong in their hours"),
)
"""Published value and reason of each run; the second run restates the rows of the first."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Screenshot of a part of the report by CSS selector, or of the top of the page (None); sizes in pixels."""

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
    Picture("report-verification", "#verification", 1024),
)


DAG_ID, DAY = "backfill_flights", "2013-02-08"
PAGES = ("overview", "windows", "day", "watermark", "checks", "reprocess")
"""Pages inside Airflow that the tour shows."""
ROW = {"window": "2013-02-27T19:00Z", "key": "carrier=B6"}
"""A row with late and dropped records, whose page explains it."""
OUTAGE = "EWR:2013-02-10/2013-02-12"
DRY_RUN = "manual__preview"
SAMPLE, SEED = 200, 7
PAGE_WIDTH, PAGE_HEIGHTS, TALL_HEIGHTS = 1280, (200, 1000), (200, 1480)
TALL_PAGES = ("watermark", "explain")
"""Pages whose charts and tables need more height."""


def main() -> int:
    """Take all screenshots, and return the exit status."""
    home = Home(Path(os.environ.get(HOME_VARIABLE) or CHECKOUT / ".backstream" / "pictures").resolve())
    os.environ[HOME_VARIABLE] = str(home.path)
    prepare(home.path, progress=lambda step: print(f"flights: {step}"))
    plan = _publish_revisions(home)
    verify_run(plan, SAMPLE, SEED)
    html = report_text(plan, ReportFormat.HTML)
    _preview_first_revision(home)
    # Stores the curves for the watermark page.
    advise(str(home.path / "definitions" / "flights.toml"), SINCE, UNTIL, outage=[OUTAGE])
    # The screenshots must not show the path of the home on this machine.
    html = html.replace(str(home.path), f"${HOME_VARIABLE}")
    IMAGES.mkdir(exist_ok=True)
    with chromium() as browser:
        for picture in PICTURES:
            _print_written(_take_picture(browser, html, picture))
    _take_pages(home)
    return 0


def _print_written(file: Path) -> None:
    print(f"wrote {file.relative_to(CHECKOUT)}")


def _take_pages(home: Home) -> None:
    """Take a screenshot of each page, in an Airflow for the same home."""
    addresses = {name: address for name, address in pages(DAG_ID, DAY).items() if name in PAGES}
    addresses["explain"] = f"explain?{urlencode({'dag_id': DAG_ID, **ROW})}"
    addresses["preview"] = f"run?{urlencode({'dag_id': 'reprocess_flights', 'run_id': DRY_RUN})}"
    settings = {DEFINITIONS_VARIABLE: str(home.path / "definitions")}
    started_at = datetime.now(UTC)
    with Stack(home.path, settings=settings) as stack, tempfile.TemporaryDirectory() as folder:
        api = stack.start()
        stack.wait_until(f"has the DAG {DAG_ID}", lambda: api.has_dag(DAG_ID, started_at))
        credentials = {"username": USER, "password": stack.password}
        for is_tall in (False, True):
            group = {name: address for name, address in addresses.items() if (name in TALL_PAGES) is is_tall}
            views = [PAGE_WIDTH], ["light"], TALL_HEIGHTS if is_tall else PAGE_HEIGHTS
            files = take(stack.place.url, credentials, group, Path(folder), *views)
            for name, file in zip(group, files, strict=True):
                _print_written(file.replace(IMAGES / f"page-{name}.png"))


def _publish_revisions(home: Home) -> Plan:
    """Run all revisions that have not been published, in order, and return the plan of the last one."""
    plans = [_publish_revision(home, publish, reason) for publish, reason in REVISIONS]
    return plans[-1]


def _preview_first_revision(home: Home) -> None:
    """Store the result of a dry run, as the task `plan` does: the changes if the first revision came back."""
    definition = _write_definition(home, REVISIONS[0][0])
    span = Interval(instant_ms(SINCE, "since"), instant_ms(UNTIL, "until"))
    request = PlanRequest(definition, span, mode=Mode.REPLAY, trigger=DRY_RUN, home=home)
    plan = plan_run(request)
    changes, _, result = preview_dry_run(plan, home)
    impact = estimate_impact(plan, home).as_json() | {"changes": changes, "preview": result}
    requested_at_ms = int(time.time() * SECOND_MS)
    asked = RunRequest("flights", "reprocess_flights", DRY_RUN, DRY_RUN, requested_at_ms, reason=REVISIONS[0][1])
    replace(asked, is_dry_run=True, run_id=plan.run_id, impact=impact).write(home)
    _write_definition(home, REVISIONS[-1][0])


def _publish_revision(home: Home, publish: str, reason: str) -> Plan:
    definition = _write_definition(home, publish)
    if published := _find_published_plan(home, load_definition(definition).definition_hash):
        return published
    span_ms = (instant_ms(SINCE, "since"), instant_ms(UNTIL, "until"))
    spark = SparkStart(definition)
    plan = plan_run(
        PlanRequest(definition, Interval(*span_ms), mode=Mode.REPLAY, trigger="cli", reason=reason, home=home)
    )
    run_plan(plan, spark)
    return plan


def _write_definition(home: Home, publish: str) -> Path:
    """Write the definition of the demo with another published value, always to the same file of the dataset."""
    text = (CHECKOUT / "pipelines" / "definitions" / "flights.toml").read_text(encoding="utf-8")
    file = home.path / "definitions" / "flights.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.replace('publish = "final"', f'publish = "{publish}"'), encoding="utf-8")
    return file


def _find_published_plan(home: Home, definition_hash: str) -> Plan | None:
    for file in (home.path / "runs" / "flights").glob("*/plan.json"):
        plan = Plan.read(file)
        if plan.definition_hash == definition_hash and plan.folder.publication.exists():
            return plan
    return None


def _take_picture(browser: Browser, html: str, picture: Picture) -> Path:
    """Take one screenshot, in a new page without scripts."""
    file = IMAGES / f"{picture.name}.png"
    page = browser.new_page(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.scheme == "dark" else "light",
        java_script_enabled=False,
    )
    page.set_content(html)
    _take_screenshot(page, picture, file)
    page.close()
    return file


def _take_screenshot(page: Page, picture: Picture, file: Path) -> None:
    if picture.selector is None:
        page.screenshot(path=file)
    else:
        page.locator(picture.selector).screenshot(path=file)


if __name__ == "__main__":
    sys.exit(main())
