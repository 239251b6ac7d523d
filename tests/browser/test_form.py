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
