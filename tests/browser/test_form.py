"""Test the two forms in a browser: that of Airflow and that of the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.e2e

Opened = Callable[..., "Page"]
COLOR = "heading => getComputedStyle(heading).color"
VISITS = "/backstream/reprocess?dag_id=backfill_visits"
FORM = "/backstream/reprocess?dag_id=backfill_flights&since=2024-02-08&until=2024-02-09"


def test_no_section_of_airflows_form_is_red_before_anything_is_typed(opened: Opened) -> None:
    page = opened("/dags/reprocess_flights")
    page.get_by_role("button", name="Trigger").first.click()
    sections = [page.get_by_role("dialog").get_by_text(name, exact=True) for name in ("Range", "Execution")]
    sections[0].wait_for()
    assert len({section.evaluate(COLOR) for section in sections}) == 1


def test_fields_without_meaning_in_the_mode_are_disabled_with_the_reason(opened: Opened) -> None:
    page = opened(FORM)
    page.get_by_text("Advanced options").click()
    delay = page.get_by_label("Delay", exact=True)
    assert delay.is_disabled()
    assert page.locator("#why-delay").inner_text() == "Disabled: with recompute, no record is late."
    page.get_by_label("Mode").select_option("replay")
    assert delay.is_enabled()
    assert page.locator("#why-delay").count() == 0


def test_a_preview_keeps_what_was_typed_and_shows_problems_at_their_fields(opened: Opened) -> None:
    page = opened(FORM)
    page.get_by_label("Reason").fill("because <it>")
    page.get_by_text("Advanced options").click()
    page.get_by_label("Chunk").fill("5h")
    page.get_by_role("button", name="Show effect").click()
    assert page.get_by_label("Reason").input_value() == "because <it>"
    chunk = page.get_by_label("Chunk")
    assert (chunk.input_value(), chunk.get_attribute("aria-invalid")) == ("5h", "true")
    assert "backfill.chunk must be whole days" in page.locator("#p-chunk").inner_text()


def test_the_effect_of_what_is_typed_is_shown_before_anything_starts(opened: Opened) -> None:
    page = opened(VISITS, width=390)
    effect = page.get_by_role("status")
    assert "enter both ends of a range" in effect.inner_text()
    page.get_by_label("Since").fill("2024-03-01")
    page.get_by_label("Until").fill("2024-03-02")
    page.keyboard.press("Tab")
    effect.get_by_text("Published rows replaced").wait_for()
    figures = dict(
        zip(effect.locator("dt").all_inner_texts(), effect.locator("dd").all_inner_texts(), strict=True)
    )
    assert figures == {
        "Days": "1",
        "Events, about": "123",
        "Published rows replaced": "30",
        "Duration, about": "unknown: no run yet",
    }
    assert page.get_by_role("button", name="Start run").is_enabled()


def test_the_effect_names_who_published_the_rows_that_a_run_replaces(opened: Opened) -> None:
    effect = opened(FORM).get_by_role("status")
    assert "by the schedule or command line" in effect.locator("li").inner_text()
    report = effect.get_by_role("link").get_attribute("href") or ""
    assert report.startswith("report?dag_id=backfill_flights&run_id=")


def test_a_value_that_makes_no_sense_is_marked_as_soon_as_it_is_typed(opened: Opened) -> None:
    page = opened(f"{VISITS}&since=2024-03-01&until=2024-03-02")
    page.get_by_label("Until").fill("2099-03-02")
    page.keyboard.press("Tab")
    problem = page.locator("#p-until").get_by_role("alert")
    problem.wait_for()
    assert problem.inner_text().startswith("until must not be after 20")
    assert page.get_by_label("Until").get_attribute("aria-invalid") == "true"
    assert page.get_by_role("status").locator("p").inner_text() == "No run: correct the marked values first."
    assert page.locator("#p-reason").inner_text() == ""
    page.get_by_label("Until").fill("2024-03-02")
    page.keyboard.press("Tab")
    page.get_by_role("status").get_by_text("Published rows replaced").wait_for()
    assert problem.count() == 0
    assert page.get_by_label("Until").get_attribute("aria-invalid") is None
