"""Test the pages in a real browser, inside Airflow: log in, hover, open a window, start a run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from tests.browser.addresses import READ, shown_pages
from tests.browser.seed import DAYS, WAITING

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.e2e

DAG = "dag_id=backfill_flights"
WAITS = urlencode({"dag_id": "reprocess_flights", "run_id": WAITING[0]})
PAGES = {
    "overview": "overview",
    "windows": f"dataset?{DAG}",
    "day": f"day?{DAG}&day=2024-02-08",
    "watermark": f"watermark?{DAG}&delay=45m",
    "explain": READ["/explain"][1],
    "checks": f"checks?{DAG}",
    "runs": f"runs?{DAG}",
    "reprocess": f"reprocess?{DAG}&since=2024-02-08",
    "approval": f"approval?{WAITS}",
    "run": f"run?{WAITS}",
    "hostile": "dataset?dag_id=backfill_orders",
    "hostile day": "day?dag_id=backfill_orders&day=2016-01-01",
    "hostile checks": "checks?dag_id=backfill_orders",
    "never ran": "dataset?dag_id=backfill_clicks",
    "unknown": "dataset?dag_id=backfill_nothing",
}

ONE_YEAR: Any = {"exclude": [[".year:not(:first-child)"]]}
"""The newest year has a day of every status; checking the others would take most of the time."""
FIRST_PAINT = """new Promise(tell => new PerformanceObserver(list => {
  for (const each of list.getEntriesByName("first-contentful-paint")) tell(each.startTime);
}).observe({type: "paint", buffered: true}))"""

WIDTHS = [(1440, "light"), (390, "dark")]
"""The widths at which people read, and the scheme of each."""
Opened = Callable[..., "Page"]


WITHOUT_RELOAD = """const wait = window.setTimeout;
window.setTimeout = (run, ms, ...rest) => ms >= 5_000 ? 0 : wait(run, ms, ...rest);"""


def shown(opened: Opened, name: str, **options: Any) -> Page:
    return opened(f"/backstream/{PAGES[name]}", **options)


def still(opened: Opened, name: str, **options: Any) -> Page:
    """Return a page that doesn't load itself again, nor do the pages after it, while a test looks at them."""
    page = shown(opened, name, **options)
    page.add_init_script(WITHOUT_RELOAD)
    page.reload()
    return page


def test_the_overview_is_a_page_of_airflows_own_menu(opened: Opened) -> None:
    page = opened("/plugin/backfills")
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name="flights").wait_for()
    frame.get_by_role("link", name="flights").first.click()
    frame.get_by_role("heading", name="Windows of flights").wait_for()


@pytest.mark.parametrize(
    ("path", "heading"),
    [
        ("/dags/backfill_flights/plugin/backstream_windows", "Windows of flights"),
        ("/dags/restate_flights/plugin/backstream_windows", "Windows of flights"),
        ("/dags/backfill_flights/plugin/backstream_watermark", "Watermark of flights"),
        ("/dags/backfill_clicks/plugin/backstream_windows", "Windows of clicks"),
    ],
)
def test_each_dag_has_tabs(opened: Opened, path: str, heading: str) -> None:
    opened(path).frame_locator("iframe").get_by_role("heading", name=heading).wait_for()


def test_from_a_warning_on_the_grid_to_its_windows_fates_and_a_run_of_the_day(opened: Opened) -> None:
    page = shown(opened, "windows")
    day = page.locator("a.day.s-warn").first
    day.hover()
    assert day.get_attribute("title") == "8 Feb 2024: published, warning, 64 of 72 windows, 3.8 % late or dropped"
    day.click()
    assert page.get_by_role("heading", level=1).inner_text().startswith("8 Feb 2024")
    assert page.locator(".window-list details").count() == 24
    page.locator("summary", has_text="2024-02-08 03:00").click()
    cells = page.get_by_role("region", name="Fates of the window of 2024-02-08 03:00").locator(
        "tr", has_text="JFK"
    )
    assert cells.inner_text().split()[:3] == ["JFK", "missing", "0"]
    story = page.locator(".story")
    assert story.locator("strong").all_inner_texts() == ["First published", "Restated"]
    assert story.locator(".chip").all_inner_texts() == ["current rows"]
    assert page.get_by_role("link", name="Report of restate__2024-02").is_visible()
    assert page.get_by_text("4 values changed").is_visible()

    page.get_by_role("link", name="Reprocess day").click()
    assert page.get_by_label("Since").input_value() == "2024-02-08"
    assert page.get_by_label("Until").input_value() == "2024-02-09"
    page.get_by_label("Reason").fill("windows of JFK are missing")
    page.get_by_role("button", name="Start run").click()
    page.get_by_role("heading", name="Run started").wait_for()
    assert "of DAG reprocess_flights" in page.locator("main").inner_text()


def test_days_are_walked_and_a_range_is_chosen_by_keys_alone(opened: Opened) -> None:
    page = shown(opened, "windows")
    assert page.locator("a.day[href]").count() == DAYS
    assert page.locator("a.day[href]:not([tabindex='-1'])").count() == 1
    page.locator("a.day[tabindex='0']").focus()
    for key in ("ArrowUp", "ArrowLeft", "Shift+ArrowLeft", "Shift+ArrowLeft"):
        page.keyboard.press(key)
    assert page.locator("#range-status").inner_text() == "3 days selected: 2024-02-15 until 2024-02-18"
    page.get_by_role("button", name="Reprocess range").click()
    assert page.get_by_label("Since").input_value() == "2024-02-15"
    assert page.get_by_label("Until").input_value() == "2024-02-18"


def test_without_scripts_every_day_is_a_link_and_the_form_still_works(opened: Opened) -> None:
    page = shown(opened, "windows", java_script_enabled=False)
    assert page.locator("a.day[href]:not([tabindex])").count() == DAYS


def test_the_windows_page_lists_missing_and_stale_days_with_an_action(opened: Opened) -> None:
    page = shown(opened, "windows")
    assert page.get_by_text("The run over 1 Jan 2016 was interrupted").is_visible()
    assert page.get_by_text("Running: 9 Mar to 10 Mar 2024, replay, 0 of 1 chunk").is_visible()
    items = [" ".join(each.split()) for each in page.locator(".ranges li").all_inner_texts()]
    assert items == [
        "11 Mar to 12 Mar 2024 2 days: missing Reprocess 11 Mar to 12 Mar 2024",
        "22 Feb to 23 Feb 2024 2 days: stale (1 input file changed: late.parquet) Reprocess 22 Feb to 23 Feb 2024",
    ]


def test_the_watermark_page_shows_any_delay_that_a_user_selects(opened: Opened) -> None:
    page = shown(opened, "watermark")
    page.get_by_label("Delay to check").fill("2h")
    page.get_by_role("button", name="Show").click()
    asked = page.locator("tr", has=page.get_by_text("selected", exact=True)).inner_text().split()
    assert asked[:4] == ["2", "h", "selected", "413"]


def test_markup_in_data_does_nothing(opened: Opened) -> None:
    for name in ("hostile", "hostile day", "hostile checks"):
        page = shown(opened, name)
        assert "owned" not in page.title()
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 1


def test_a_script_that_got_in_would_not_run(opened: Opened) -> None:
    page = shown(opened, "overview")
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'document.title=1'}))"
    )
    assert page.title() != "1"
    assert any("Content Security Policy" in text for text in refused)


def test_no_page_is_wider_than_a_tablet(opened: Opened) -> None:
    width = 1024
    page = shown(opened, "overview", width=width)
    for path in PAGES.values():
        page.goto(f"/backstream/{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_long_value_does_not_push_the_columns_of_runs_out_of_sight(opened: Opened) -> None:
    page = shown(opened, "overview", width=1280)
    page.goto("/backstream/runs")
    hidden = page.evaluate("(box => box.scrollWidth - box.clientWidth)(document.querySelector('.scroll'))")
    assert hidden == 0


def test_on_a_phone_each_run_shows_all_of_its_values_with_their_names(opened: Opened) -> None:
    page = still(opened, "runs", width=390)
    rows = page.locator(".run-list tbody tr")
    cells = rows.first.locator("[data-label]")
    names = [cell.get_attribute("data-label") for cell in cells.all()]
    assert names == ["Status", "Verdict", "Started", "Range", "Mode", "Rows", "Requested by", "Run"]
    for cell in page.locator(".run-list [data-label]").all():
        box = cell.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert rows.count() >= 6 + len(WAITING)  # tests of other files start more on the same server


@pytest.mark.parametrize(
    ("width", "scheme"),
    [*WIDTHS, *(pytest.param(*each, marks=pytest.mark.long) for each in [(1440, "dark"), (390, "light")])],
)
def test_every_page_fits_and_is_accessible(opened: Opened, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = still(opened, "overview", scheme=scheme, width=width)
    # Only colors depend on the scheme, and only the rest on the width.
    is_whole = (width, scheme) in WIDTHS
    rules = {} if is_whole else {"runOnly": ["color-contrast"]}
    found = []
    for address in (*shown_pages(), *PAGES.values()):
        page.goto(f"/backstream/{address}")
        violations = axe.run(page, context=ONE_YEAR, options=rules).response["violations"]
        found += [(address, each["id"], each["nodes"][0]["html"][:120], len(each["nodes"])) for each in violations]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append((address, "wider than the window", "", 0))
    assert found == []


TABBABLE = """[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
  .filter(each => each.tabIndex >= 0 && !each.disabled && each.type !== "hidden" && each.checkVisibility())"""
FOCUSED = """() => {
  const focused = document.activeElement, style = getComputedStyle(focused);
  return [TABBABLE.indexOf(focused), style.outlineStyle !== "none" && style.outlineWidth !== "0px"];
}""".replace("TABBABLE", TABBABLE)


@pytest.mark.parametrize(("width", "scheme"), WIDTHS)
def test_every_control_is_reached_by_the_tab_key_and_shows_its_focus(
    opened: Opened, width: int, scheme: str
) -> None:
    page = still(opened, "overview", scheme=scheme, width=width)
    for address in shown_pages():
        page.goto(f"/backstream/{address}")
        controls = min(page.evaluate(f"{TABBABLE}.length"), 40)
        seen = []
        for _ in range(3 * controls):  # a date has three parts, and each is a stop
            page.keyboard.press("Tab")
            position, is_visible = page.evaluate(FOCUSED)
            if position < 0 or position >= controls:
                break
            assert is_visible, (address, position)
            seen.append(position)
        assert sorted(set(seen)) == list(range(controls)), address


def test_three_thousand_days_are_painted_within_a_second(opened: Opened) -> None:
    page = shown(opened, "windows")
    paints_ms = []
    for _ in range(3):
        page.reload()
        paints_ms.append(page.evaluate(FIRST_PAINT))
    others = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # how many share each core just now
    assert min(paints_ms) < 1_000 * others, paints_ms


def test_pages_send_requests_only_to_their_own_server(opened: Opened) -> None:
    page = shown(opened, "overview")
    own = re.match(r"https?://[^/]+", page.url)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES.values():
        page.goto(f"/backstream/{path}")
    assert own
    assert all(url.startswith(own[0]) for url in asked)
    assert len(asked) == len(PAGES)
