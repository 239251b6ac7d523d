"""Test the approval of a publication and the page of a run, with a real API server and real roles."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from tests.browser.seed import DAG_ID, HOSTILE, TEAM_RUN, WAITING

from backstream.text import visible_text

if TYPE_CHECKING:
    import httpx
    from playwright.sync_api import Page

pytestmark = pytest.mark.e2e

OWN = {"Sec-Fetch-Site": "same-origin"}
LOOKED_AT, APPROVED, REJECTED, CANCELED = WAITING

Clients = dict[str | None, "httpx.Client"]
Opened = Callable[..., "Page"]


def address(page: str, run_id: str) -> str:
    return f"/backstream/{page}?{urlencode({'dag_id': DAG_ID, 'run_id': run_id})}"


def post_form(clients: Clients, user: str, page: str, run_id: str, **typed: str) -> httpx.Response:
    return clients[user].post(address(page, run_id), data=typed, headers=OWN)


def question(clients: Clients, run_id: str) -> Any:
    path = f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/approve/-1/hitlDetails"
    return clients["admin"].get(path).json()


def test_run_question_and_report_are_linked_both_ways(opened: Opened) -> None:
    page = opened(address("run", LOOKED_AT))
    summary = "Waits for approval since 2024-03-20 06:00, until 2099-03-21 06:00 UTC"
    assert page.locator(".summary").inner_text() == summary
    page.get_by_role("link", name="Approve or reject").click()
    page.get_by_role("link", name="Report", exact=True).click()
    assert page.get_by_role("heading", name="Before approval").is_visible()
    page.go_back()
    page.get_by_role("link", name="Run", exact=True).click()
    assert page.get_by_role("heading", name="Run of flights").is_visible()


@pytest.mark.parametrize("width", [390, 1440])
def test_the_approver_sees_both_values_beside_two_buttons_of_which_reject_is_not_the_first(
    opened: Opened, width: int
) -> None:
    page = opened(address("approval", LOOKED_AT), width=width)
    assert page.get_by_role("button").all_inner_texts() == ["Approve", "Reject"]
    assert page.locator("button.primary").inner_text() == "Approve"
    assert "44 rows changed, 0 rows removed, compared with version 3" in page.locator("main").inner_text()
    row = page.locator(".run-list tbody tr").first
    cells = {cell.get_attribute("data-label"): cell.inner_text() for cell in row.locator("[data-label]").all()}
    assert cells == {
        "Window": "2024-03-16 05:00",
        "carrier": visible_text(HOSTILE),
        "Published": "11",
        "New": "14",
        "Difference": "+3",
    }
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    form = page.get_by_role("link", name="Airflow's form").get_attribute("href") or ""
    assert form.endswith("/tasks/approve/required_actions")


def test_the_lists_lead_to_the_question(opened: Opened) -> None:
    for path in ("overview", "dataset?dag_id=backfill_flights", "runs?dag_id=backfill_flights"):
        page = opened(f"/backstream/{path}")
        page.get_by_role("link", name="Approve or reject").first.click()
        assert page.get_by_role("heading", name="Publish flights?").is_visible()


@pytest.mark.parametrize(("run_id", "answer"), [(APPROVED, "Approve"), (REJECTED, "Reject")])
def test_an_answer_is_that_of_the_user_and_counts_once(clients: Clients, run_id: str, answer: str) -> None:
    assert post_form(clients, "admin", "approval", run_id, answer=answer).status_code == 200

    detail = question(clients, run_id)
    assert (detail["chosen_options"], detail["responded_by_user"]["name"]) == ([answer], "admin")
    again = post_form(clients, "admin", "approval", run_id, answer=answer)
    assert again.status_code == 409
    assert "Airflow did not accept the answer: Human-in-the-loop detail has already been updated" in again.text


@pytest.mark.parametrize("user", ["viewer", "flights"])
def test_who_may_only_look_answers_and_cancels_nothing(clients: Clients, user: str) -> None:
    assert post_form(clients, user, "approval", LOOKED_AT, answer="Approve").status_code == 403
    assert post_form(clients, user, "cancel", LOOKED_AT).status_code == 403
    assert question(clients, LOOKED_AT)["response_received"] is False
    page = clients[user].get(address("approval", LOOKED_AT))
    assert page.status_code == 200
    assert "your role in Airflow does not allow you to answer it" in page.text
    assert "<button" not in page.text
    assert "Cancel run" not in clients[user].get(address("run", LOOKED_AT)).text


def test_an_answer_of_another_site_or_another_word_is_not_passed_on(clients: Clients) -> None:
    other = clients["admin"].post(address("approval", LOOKED_AT), data={"answer": "Approve"})
    unknown = post_form(clients, "admin", "approval", LOOKED_AT, answer="Maybe")
    assert (other.status_code, unknown.status_code) == (403, 400)
    assert "the answer must be Approve or Reject, got &#39;Maybe&#39;" in unknown.text
    assert question(clients, LOOKED_AT)["response_received"] is False


def test_a_run_that_airflow_has_ended_is_not_shown_as_running(clients: Clients) -> None:
    before = clients["admin"].get(address("run", CANCELED)).text
    after = post_form(clients, "admin", "cancel", CANCELED)
    assert 'data-reload="10"' in before
    assert after.status_code == 200
    assert ">Interrupted</strong>" in after.text
    assert "data-reload" not in after.text
    run = clients["admin"].get(f"/api/v2/dags/{DAG_ID}/dagRuns/{CANCELED}").json()
    assert (run["state"], run["note"]) == ("failed", "Canceled on the page of the run in backstream.")


def test_a_run_in_a_teams_own_dag_has_a_page_and_an_approval(clients: Clients) -> None:
    team = urlencode(dict(zip(("dag_id", "run_id"), TEAM_RUN, strict=True)))
    run = clients["admin"].get(f"/backstream/run?{team}").text
    assert "Waits for approval since 2024-03-20 06:00" in run
    assert "Log of load.approve" in run
    assert "group=load" in clients["admin"].get("/backstream/runs?dag_id=backfill_flights").text
    assert clients["flights"].get(f"/backstream/run?{team}").status_code == 403
    answered = clients["admin"].post(f"/backstream/approval?{team}", data={"answer": "Approve"}, headers=OWN)
    assert answered.status_code == 200
    path = f"/api/v2/dags/{TEAM_RUN[0]}/dagRuns/{TEAM_RUN[1]}/taskInstances/load.approve/-1/hitlDetails"
    assert clients["admin"].get(path).json()["chosen_options"] == ["Approve"]


REFUSED = "/backstream/{}?dag_id=backfill_flights&run_id=manual__refused"


def test_a_stopped_run_is_dismissed_with_a_reason_by_who_may_change_runs(clients: Clients, opened: Opened) -> None:
    dismiss = REFUSED.format("dismiss")
    for user in ("viewer", "flights"):
        assert clients[user].post(dismiss, data={"reason": "known"}, headers=OWN).status_code == 403
    assert clients["admin"].post(dismiss, data={"reason": "known"}).status_code == 403  # of another site
    assert "A reason of 1 to 500" in clients["admin"].post(dismiss, data={"reason": " "}, headers=OWN).text
    days = clients["admin"].get("/backstream/overview").text.count("s-failed")

    page = opened("/backstream/runs?dag_id=backfill_flights")
    page.get_by_role("link", name="Dismiss manual__refused").click()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_label("Reason").fill("known <b>fault")
    page.get_by_role("button", name="Dismiss run").click()

    assert re.search(r"Dismissed by admin .*: known <b>fault", page.locator("main").inner_text())
    assert page.get_by_role("button", name="Dismiss run").count() == 0
    assert "Dismissed by admin" in clients["viewer"].get("/backstream/runs?dag_id=backfill_flights").text
    assert clients["admin"].get("/backstream/overview").text.count("s-failed") == days
    again = clients["admin"].post(dismiss, data={"reason": "twice"}, headers=OWN)
    assert again.status_code == 409

    assert clients["viewer"].post(dismiss, data={"undo": "true"}, headers=OWN).status_code == 403
    page.get_by_role("button", name="Undo dismissal").click()
    page.get_by_role("button", name="Dismiss run").wait_for()
    assert "Dismissed by" not in page.locator("main").inner_text()
    assert "Dismissed by admin" not in clients["viewer"].get("/backstream/runs?dag_id=backfill_flights").text


def test_a_dry_run_shows_its_result_and_is_not_running(clients: Clients) -> None:
    page = clients["viewer"].get("/backstream/run?dag_id=reprocess_flights&run_id=manual__dry").text
    assert ">Dry run</strong>" in page
    assert "data-reload" not in page
    assert "Result of the dry run" in page
    for name, value in (("Days", "2"), ("Events, about", "1,484"), ("Published rows replaced", "44")):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page
    assert "1 day by ada" in page


def test_the_page_of_a_dry_run_has_the_changes_by_day_and_aggregate_and_the_cost(opened: Opened) -> None:
    page = opened("/backstream/run?dag_id=reprocess_flights&run_id=manual__dry")
    days = page.get_by_role("region", name="Changed rows by day").locator("tbody tr").all_inner_texts()
    assert [text.split("\t") for text in days] == [
        [day, "about 760 (95%: 523 to 1,070)", "late data, definition"] for day in ("2024-02-08", "2024-02-09")
    ]
    changes = page.get_by_role("region", name="Changes by aggregate").locator("tbody tr").all_inner_texts()
    assert changes[0].split("\t") == ["departures", "38", "about +760 (95%: +523 to +1,070)"]
    assert changes[1].split("\t")[1:] == ["1", "about -12.5 (95%: unknown to unknown)"]
    main = page.locator("main").inner_text()
    assert "5 % of the keys: 218 keys with 1,108 records" in main
    assert "31 files, 204.7 kB" in main
    assert "and 1 more" in main


def test_the_form_starts_a_preview(opened: Opened, clients: Clients) -> None:
    page = opened("/backstream/reprocess?dag_id=backfill_flights&since=2024-02-08")
    page.get_by_label("Reason").fill("what changes?")
    page.get_by_role("button", name="Preview changes").click()
    page.get_by_role("heading", name="Preview started").wait_for()
    page.get_by_role("link", name="Result of the preview").click()
    run_id = parse_qs(urlsplit(page.url).query)["run_id"][0]
    started = clients["admin"].get(f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}").json()
    assert (started["conf"]["dry_run"], started["conf"]["reason"]) == (True, "what changes?")


def test_a_started_run_has_a_live_page_before_its_plan(opened: Opened) -> None:
    page = opened("/backstream/reprocess?dag_id=backfill_flights&since=2024-02-08")
    page.get_by_label("Reason").fill("progress")
    page.get_by_role("button", name="Start run").click()
    assert re.search(
        r"/dags/reprocess_flights/runs/", page.get_by_text("Run in Airflow").get_attribute("href") or ""
    )
    page.get_by_role("link", name="Progress of the run").click()
    assert page.locator(".summary").inner_text().startswith("Queued in Airflow.")
    assert page.get_by_role("button", name="Cancel run").is_visible()


def test_a_published_run_is_its_report_and_an_unknown_one_is_not_found(clients: Clients) -> None:
    report = clients["viewer"].get("/backstream/run?dag_id=backfill_flights&run_id=backfill__2016")
    assert "<h1>Report of flights</h1>" in report.text
    assert clients["viewer"].get("/backstream/run?dag_id=backfill_flights&run_id=none").status_code == 404
    assert clients["viewer"].get("/backstream/approval?dag_id=backfill_flights&run_id=none").status_code == 404


def test_a_link_to_airflow_leaves_the_frame(opened: Opened) -> None:
    page = opened(f"/dags/{DAG_ID}/runs/{LOOKED_AT}/plugin/backstream_report")
    page.frame_locator("iframe").get_by_role("link", name="Run in Airflow").click()
    page.wait_for_url(re.compile(r"/dags/reprocess_flights/runs/[^/]+/?$"))
