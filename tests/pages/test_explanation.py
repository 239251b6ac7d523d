"""The page that explains a published row: its time line, its records, and the opinion of the reference engine."""

from __future__ import annotations

import threading

import pytest
from tests.browser.visits import DAY_MS_OF_VISITS, TAMPERED, WINDOW, publish_visits, write_definition

from backstream.charts.svg import Frame
from backstream.charts.timelines import Dot, WindowTimeline, draw_window_timeline
from backstream.eventtime.instants import HOUR_MS, MINUTE_MS
from backstream.pages import explanation
from backstream.pages.explanation import explanation_page
from backstream.pages.render import Page
from backstream.pages.store import PageStore
from backstream.pages.time_limits import LimitedCalls
from backstream.runs.home import Home
from backstream.variables import HOME_VARIABLE

HOSTILE = "<b>\u202e&"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> PageStore:
    folder = tmp_path_factory.mktemp("visits")
    home = Home(folder / "home")
    (folder / "definitions").mkdir()
    definition = write_definition(folder / "definitions")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME_VARIABLE, str(home.path))
        publish_visits(home, definition, HOSTILE)
    return PageStore.from_home(home)


@pytest.fixture(autouse=True)
def project(records: PageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(records.home.path))
    monkeypatch.setenv("BACKSTREAM_DEFINITIONS", str(records.home.path.parent / "definitions"))


def explain(records: PageStore, window: str, *keys: str) -> Page:
    return explanation_page(records, "backfill_visits", window, keys)


def test_a_window_lists_its_rows_with_links(records: PageStore) -> None:
    page = explain(records, WINDOW)
    assert page.status == 200
    assert "key=page%3Dhome" in page.html
    assert "page &lt;b&gt;&lt;U+202E&gt;&amp;" in page.html


def test_a_row_has_its_records_firings_and_time_line(records: PageStore) -> None:
    page = explain(records, WINDOW, "page=home").html
    assert "Confirmed" in page
    assert page.count('<svg class="chart timeline"') == 1
    assert (
        'aria-label="Records by arrival and event time: 3 on time, 1 duplicate, 1 late, 1 dropped; 2 firings"'
        in page
    )
    for fate in ("on_time", "duplicate", "late", "dropped"):
        assert f'<circle class="fate-{fate}"' in page
    assert 'class="watermark-line"' in page
    assert "<td>2024-03-01T04:30Z</td>" in page


def test_a_row_that_differs_from_the_input_is_red(records: PageStore) -> None:
    page = explain(records, TAMPERED, "page=home").html
    assert 'class="verdict fail"' in page
    assert "clicks is 4 in the table, 3 recomputed" in page


def test_a_slow_explanation_ends_with_the_command_that_has_no_limit(
    records: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_free = threading.Event()
    monkeypatch.setattr(explanation, "_EXPLANATIONS", LimitedCalls("the recomputation of the row", limit_s=0.05))
    monkeypatch.setattr(explanation, "explain_window", lambda *_: is_free.wait(60))
    try:
        page = explain(records, WINDOW, "page=home")
    finally:
        is_free.set()
    assert page.status == 503
    assert "the recomputation of the row has not responded within 0.05 s." in page.html
    assert f"backstream explain visits --window {WINDOW}" in page.html


def test_a_row_that_cannot_be_explained_shows_the_reason(
    records: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for window, keys in (("soon", ()), (WINDOW, ("=home",)), (WINDOW, ("day=1",)), ("2030-01-01", ("page=home",))):
        page = explain(records, window, *keys)
        assert (page.status, "No explanation" in page.html) == (404, True)
    assert "the key of visits has the columns page, got day" in explain(records, WINDOW, "day=1").html
    monkeypatch.setattr(explanation, "MAX_RECOMPUTED", 3)
    assert "the row has 5 records, more than 3" in explain(records, WINDOW, "page=home").html


def test_the_watermark_is_drawn_in_steps_within_the_chart() -> None:
    start_ms = DAY_MS_OF_VISITS
    timeline = WindowTimeline(
        label="two records",
        start_ms=start_ms,
        end_ms=start_ms + HOUR_MS,
        kept_until_ms=start_ms + 2 * HOUR_MS,
        dots=[
            Dot(start_ms, start_ms, "on_time", "first"),
            Dot(start_ms + 100 * MINUTE_MS, start_ms + HOUR_MS - 1, "late", "second"),
        ],
        watermarks=[(start_ms - 1, start_ms), (start_ms + 50 * MINUTE_MS, start_ms + HOUR_MS), (2**62, 2**63 - 1)],
        marks=(),
    )
    drawn = str(draw_window_timeline(timeline, Frame(0, 0, 108, 116)))
    # The axis is 108 minutes long with its margins, so a minute is a unit.
    assert 'd="M4 116H4V108H54V58H108"' in drawn.replace(".0", "")
    assert drawn.count("<circle") == 2
