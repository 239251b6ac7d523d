"""Test the page in a real browser: on phones and wide screens, and for accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from tests.chromium import started
from tests.report.example_run import (
    DEFINITION,
    LATE,
    MISSING,
    PASSED,
    PLAN,
    PUBLICATION,
    WITH_A_GAP,
    audit,
    frame_of,
    manifests,
)
from tests.report.test_run_context import CHANGED, NOW_MS, delays, row

from backstream.eventtime.instants import MINUTE_MS
from backstream.report.html import render_report
from backstream.report.run_context import RunContext
from backstream.runs.results import CheckOutcome, Verdict


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report with all sections and a source partition with a long name."""
    known = RunContext(
        NOW_MS,
        CHANGED,
        past=(row("cli.1", 10),),
        outcomes={MISSING.name: (CheckOutcome.PASS, CheckOutcome.ERROR)},
        delays=delays(MINUTE_MS, 3 * MINUTE_MS),
    )
    came = WITH_A_GAP.replace({"source_partition": {"north": "north" * 30}})
    html = render_report(
        PLAN,
        manifests(),
        audit(Verdict.FAIL, PASSED, MISSING, LATE),
        frame_of(came),
        PUBLICATION,
        DEFINITION,
        known,
    )
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(html, encoding="utf-8")
    return file


def opened(browser: Browser, report: Path, width: int, *, is_dark: bool = False) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if is_dark else "light")
    page.goto(report.as_uri())
    return page


@pytest.mark.parametrize("width", [400, 1024, 1600])
def test_the_page_is_never_wider_than_the_screen(browser: Browser, report: Path, width: int) -> None:
    page = opened(browser, report, width)

    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


@pytest.mark.parametrize("is_dark", [False, True])
def test_axe_finds_nothing_serious(browser: Browser, report: Path, is_dark: bool) -> None:
    page = opened(browser, report, 1024, is_dark=is_dark)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")

    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    answer = axe.run(page).response

    told = [
        (each["id"], each["impact"], [node["html"][:120] for node in each["nodes"]][:3])
        for each in answer["violations"]
    ]
    assert len(answer["passes"]) > 10
    assert [each for each in told if each[1] in ("serious", "critical")] == []
    page.close()


def test_a_chart_scrolls_in_its_box_on_a_phone(browser: Browser, report: Path) -> None:
    for width, does_scroll in ((1600, False), (400, True)):
        page = opened(browser, report, width)
        box = page.locator("#lateness figure .scroll").first
        assert box.evaluate("each => each.scrollWidth > each.clientWidth") == does_scroll
        page.close()
