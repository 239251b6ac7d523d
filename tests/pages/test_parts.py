"""Test the parts of the pages: curves, check histories, form, content security policy, and file cache."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.browser.seed import advice

from backstream.charts.line_charts import draw_trend
from backstream.errors import BackstreamError
from backstream.eventtime.instants import HOUR_MS, MINUTE_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.pages.airflow import Airflow, RejectedError
from backstream.pages.checks import CheckRow, check_histories
from backstream.pages.policy import policy
from backstream.pages.render import note_page
from backstream.pages.reprocess import ReprocessForm, next_day
from backstream.pages.store import cached_by_mtime
from backstream.pages.watermark import draw_curve, draw_holders, load_curve, parse_delay_ms
from backstream.runs.home import Home


def home_with(tmp_path: Path, content: object) -> Home:
    home = Home(tmp_path)
    home.advice("flights").parent.mkdir(parents=True)
    home.advice("flights").write_text(content if isinstance(content, str) else json.dumps(content))
    return home


def test_without_advice_there_is_no_curve(tmp_path: Path) -> None:
    assert load_curve(Home(tmp_path), "flights") is None


def test_every_delay_has_the_loss_of_the_last_change_before_it(tmp_path: Path) -> None:
    told: dict[str, Any] = advice()
    told["curve"] = {"step_ms": 1, "delay_ms": [0, 1_000, 5_000], "dropped": [9, 4, 0], "late": [3, 2, 1]}
    curve = load_curve(home_with(tmp_path, told), "flights")
    assert curve
    assert [(loss.dropped, loss.late) for loss in map(curve.at, (0, 999, 1_000, 4_999, 5_000, 10**9))] == [
        (9, 3),
        (9, 3),
        (4, 2),
        (4, 2),
        (0, 1),
        (0, 1),
    ]


def test_the_chart_marks_the_delays_in_force_recommended_and_selected(tmp_path: Path) -> None:
    curve = load_curve(home_with(tmp_path, advice()), "flights")
    assert curve
    svg = draw_curve(curve, curve.at(45 * MINUTE_MS, "selected"))
    assert [svg.count(f'class="mark-{name}"') for name in ("in-force", "recommended", "selected")] == [1, 1, 1]
    assert "share of records" in svg
    assert "watermark delay" in svg


def test_a_hypothesis_is_drawn_beside_the_recording_and_partitions_by_time(tmp_path: Path) -> None:
    curve = load_curve(home_with(tmp_path, advice()), "flights")
    assert curve
    svg = draw_curve(curve, None)
    lines = [svg.count(f'class="line-{name}"') for name in ("late", "late as-recorded", "dropped as-recorded")]
    assert lines == [1, 1, 1]
    holders = draw_holders(curve)
    assert holders is not None
    assert holders.count('class="holds"') == 3
    assert holders.count('class="delivers"') == 2 + 1
    assert "EWR held it for 29 d, " in holders
    assert "&lt;script&gt;" in holders
    compared = [(loss.dropped, wait_ms) for loss, wait_ms in curve.compared]
    assert compared == [(2_250, 30 * MINUTE_MS), (4_500, 30 * MINUTE_MS)]
    plain = {name: value for name, value in advice().items() if name not in ("recorded", "holders")}
    without = load_curve(home_with(tmp_path / "plain", plain), "flights")
    assert without
    assert (without.recorded, without.compared, draw_holders(without)) == (None, (), None)


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", json.dumps(advice() | {"curve": {"delay_ms": [], "dropped": [], "late": []}})]
)
def test_advice_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path: Path, content: str) -> None:
    with pytest.raises(BackstreamError, match=r"advice/flights\.json"):
        load_curve(home_with(tmp_path, content), "flights")


@pytest.mark.parametrize(
    ("text", "found"), [("45m", 45 * MINUTE_MS), (" 1h ", HOUR_MS), ("-1h", None), ("soon", None), ("<b>", None)]
)
def test_a_delay_is_read_as_definitions_write_it(text: str, found: int | None) -> None:
    assert parse_delay_ms(text) == found


def check(run_id: str, name: str, outcome: str, unexpected: int = 0) -> CheckRow:
    return CheckRow(run_id, name, "critical", outcome, "", "", unexpected, 10)


class Run:
    """The part of a run that a history needs."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id


def test_checks_are_sorted_by_their_latest_outcome_and_keep_earlier_ones() -> None:
    rows = [
        check("a", "late", "fail", 5),
        check("b", "late", "pass"),
        check("b", "gaps", "warn", 1),
        check("a", "old", "error"),
    ]
    runs: Any = [Run("unchecked"), Run("b"), Run("b"), Run("a")]
    shown, found = check_histories(rows, runs)
    assert [run.run_id for run in shown] == ["b", "a"]
    assert [each.name for each in found] == ["old", "gaps", "late"]
    late = found[2]
    assert [each.outcome if each else None for each in late.found] == ["pass", "fail"]
    assert late.fitting == [0.5, 1.0]
    assert late.counts == [("fail", 1), ("pass", 1)]
    assert found[1].found[1] is None


def test_a_trend_of_one_value_is_a_line_too() -> None:
    assert 'd="M0 2L240 2"' in draw_trend([1.0], "one")


FORM = ReprocessForm(
    "reprocess_flights",
    {
        "since": {"value": None, "schema": {"type": "string"}},
        "until": {"value": None, "schema": {"type": "string"}},
        "time_zone": {"value": None, "schema": {"type": ["null", "string"]}},
        "reason": {"value": None, "schema": {"type": "string", "maxLength": 500}, "description": "Kept"},
        "max_spark_jobs": {"value": None, "schema": {"type": ["null", "integer"], "title": "Spark jobs"}},
        "dry_run": {"value": False, "schema": {"type": "boolean"}},
        "mode": {"value": "as defined", "schema": {"type": "string", "enum": ["as defined", "replay"]}},
    },
)
TYPED = {"since": "2024-02-08", "until": "2024-02-10", "reason": " late "}


def test_the_form_is_that_of_the_dag() -> None:
    fields = {each.name: each for each in FORM.fields({"since": "2024-02-08"})}
    assert list(fields) == ["since", "until", "time_zone", "reason", "mode", "dry_run", "max_spark_jobs"]
    kinds = {name: field.kind for name, field in fields.items()}
    assert kinds == {
        "since": "date",
        "until": "date",
        "time_zone": "text",
        "reason": "area",
        "mode": "select",
        "dry_run": "checkbox",
        "max_spark_jobs": "number",
    }
    assert fields["since"].value == "2024-02-08"
    assert fields["reason"].description == "Kept"
    assert fields["mode"].choices == ("as defined", "replay")


def test_only_what_differs_from_the_dags_own_values_is_sent() -> None:
    asked = TYPED | {"mode": "as defined", "max_spark_jobs": "", "nonsense": "x"}
    assert FORM.conf(asked) == {
        "since": "2024-02-08T00:00:00Z",
        "until": "2024-02-10T00:00:00Z",
        "reason": "late",
    }
    told = FORM.conf(TYPED | {"max_spark_jobs": "4", "dry_run": "true", "mode": "replay"})
    assert (told["max_spark_jobs"], told["dry_run"], told["mode"]) == (4, True, "replay")


def test_days_of_a_time_zone_are_sent_as_its_midnights() -> None:
    assert FORM.conf(TYPED | {"time_zone": " America/New_York "}) == {
        "since": "2024-02-08T05:00:00Z",
        "until": "2024-02-10T05:00:00Z",
        "time_zone": "America/New_York",
        "reason": "late",
    }


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"time_zone": "New York"}, "time zone must be the name of an IANA zone"),
        ({"since": ""}, "since must be an instant"),
        ({"since": "2024-02-08T01:00Z"}, "not a boundary of UTC days"),
        ({"until": "2024-02-08"}, "the range is empty"),
        ({"max_spark_jobs": "4.5"}, "Spark jobs must be a whole number, got '4.5'"),
    ],
)
def test_the_form_rejects_invalid_values_before_a_request_to_airflow(typed: dict[str, str], said: str) -> None:
    with pytest.raises(BackstreamError, match=said):
        FORM.conf(TYPED | typed)


def test_a_day_ends_where_the_next_begins() -> None:
    assert (next_day("2024-02-28"), next_day("2023-12-31"), next_day("x")) == (
        "2024-02-29",
        "2024-01-01",
        "",
    )
    assert next_day("9999-12-31") == ""


def test_a_browser_offers_only_possible_days() -> None:
    days = Interval(instant_ms("1970-01-01", "first"), instant_ms("2024-05-09", "end"))
    fields = {each.name: each for each in FORM.fields({}, days)}
    assert (fields["since"].least, fields["since"].most) == ("1970-01-01", "2024-05-08")
    assert (fields["until"].least, fields["until"].most) == ("1970-01-02", "2024-05-09")
    assert (fields["reason"].least, fields["reason"].most) == ("", "")


def answering(status: int, body: bytes) -> Any:
    """Return an ASGI application with one response."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return application


def test_the_error_of_a_rejected_request_is_the_first_line_from_airflow() -> None:
    airflow = Airflow(answering(400, b'{"detail": "Invalid input for mode\\n\\nOn schema .."}'), "token")
    with pytest.raises(RejectedError, match=r"^Invalid input for mode$") as refused:
        asyncio.run(airflow.start_run("reprocess_flights", {}))
    assert refused.value.status == 400


def test_an_unreadable_response_of_airflow_is_reported_by_its_status() -> None:
    with pytest.raises(RejectedError, match="Airflow responded with status 502"):
        asyncio.run(Airflow(answering(502, b"<html>"), "token").form("flights"))


def test_a_hanging_airflow_is_asked_once_and_may_still_do_what_was_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backstream.pages.airflow.LIMIT_S", 0.05)
    received: list[str] = []

    async def ask() -> list[str]:
        responds = asyncio.Event()

        async def application(scope: Any, receive: Any, send: Any) -> None:
            received.append(scope["path"])
            await responds.wait()
            await answering(200, b'{"dag_run_id": "run"}')(scope, receive, send)

        airflow, found = Airflow(application, "token"), []
        for _ in range(3):
            with pytest.raises(RejectedError) as refused:
                await airflow.start_run("reprocess_flights", {})
            found.append(refused.value.describe("start the run"))
        responds.set()
        while not found[3:]:
            with suppress(RejectedError):
                found.append(await airflow.start_run("reprocess_flights", {}))
            await asyncio.sleep(0.01)
        return found

    told = asyncio.run(ask())
    sentence = "Airflow has not responded within 0.05 s. It may still start the run: look at the run in Airflow"
    assert told == [*[f"{sentence} before you try again."] * 3, "run"]
    assert len(received) == 2


def test_a_policy_names_the_one_style_and_the_one_script_by_their_hashes() -> None:
    found = policy("a {}", "1")
    assert "style-src 'sha256-mkSHzL7faOU7/U/v8Umg+058R69+vN2A2xmE3Fz1q98='" in found
    assert "script-src 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s='" in found
    assert "script-src 'none'" in policy("")


def test_the_policy_of_a_page_fits_its_style_and_its_script() -> None:
    page = note_page("title", "sentence")
    style = page.html.split("<style>")[1].split("</style>")[0]
    script = page.html.split("<script>")[1].split("</script>")[0]
    assert page.policy == policy(style, script)
    assert ' style="' not in page.html
    assert " onclick" not in page.html


def test_markup_in_a_note_is_text() -> None:
    assert "<i>" not in note_page("<i>", "<i>", "<i>").html


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    read: list[str] = []

    @cached_by_mtime
    def content(path: Path) -> str:
        read.append(path.name)
        return path.read_text() if path.exists() else ""

    file = tmp_path / "a"
    assert [content(file), content(file)] == ["", ""]
    for text, modified_ns in (("one", 1), ("two", 2)):
        file.write_text(text)
        os.utime(file, ns=(modified_ns, modified_ns))
        assert [content(file), content(file)] == [text, text]
    assert len(read) == 3
