"""Test permissions with a real API server and real roles."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.browser.seed import CONF, HOSTILE, REFUSED_CONFS

if TYPE_CHECKING:
    import httpx
    from tests.browser.server import Server

pytestmark = pytest.mark.e2e

OWN = {"Sec-Fetch-Site": "same-origin"}
RANGE = {"since": "2024-02-08", "until": "2024-02-09", "reason": "a test"}
OF_FLIGHTS = [
    "dataset?dag_id=backfill_flights",
    "day?dag_id=backfill_flights&day=2024-02-08",
    "watermark?dag_id=backfill_flights",
    "checks?dag_id=backfill_flights",
    "runs?dag_id=backfill_flights",
    "report?dag_id=backfill_flights&run_id=backfill__2016",
]
PAGES = ["overview", "runs", *OF_FLIGHTS]

Clients = dict[str | None, "httpx.Client"]


def status(clients: Clients, user: str | None, path: str) -> int:
    return clients[user].get(f"/backstream/{path}").status_code


def posted(clients: Clients, user: str | None, **options: Any) -> httpx.Response:
    asked = {"data": RANGE, "headers": OWN} | options
    return clients[user].post("/backstream/reprocess?dag_id=backfill_flights", **asked)


@pytest.mark.parametrize("path", [*PAGES, "reprocess?dag_id=backfill_flights"])
def test_a_user_without_a_login_gets_only_an_error_page(clients: Clients, path: str) -> None:
    answer = clients[None].get(f"/backstream/{path}")
    assert answer.status_code == 401
    assert "<h1>Not logged in</h1>" in answer.text
    assert "flights" not in answer.text


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("user", ["admin", "viewer", "flights"])
def test_who_may_read_the_dag_sees_the_page(clients: Clients, user: str, path: str) -> None:
    assert status(clients, user, path) == 200


@pytest.mark.parametrize("path", [path.replace("flights", "orders") for path in OF_FLIGHTS])
def test_who_may_read_another_dag_only_is_not_shown_this_one(clients: Clients, path: str) -> None:
    assert status(clients, "flights", path) == 403
    assert status(clients, "viewer", path) in (200, 404)


@pytest.mark.parametrize("path", ["overview", "runs"])
def test_lists_hold_only_what_one_may_read(clients: Clients, path: str) -> None:
    assert "orders" in clients["viewer"].get(f"/backstream/{path}").text
    assert "orders" not in clients["flights"].get(f"/backstream/{path}").text


def test_a_second_dag_in_the_address_opens_no_door(clients: Clients) -> None:
    for path in ("dataset", "checks", "watermark"):
        for both in ("dag_id=backfill_flights&dag_id=backfill_orders", "dag_id=~&dag_id=backfill_orders"):
            assert status(clients, "flights", f"{path}?{both}") == 403
        assert status(clients, "flights", f"{path}?dag_id=~") == 404


@pytest.mark.parametrize("user", ["viewer", "flights"])
def test_who_may_only_look_starts_nothing(clients: Clients, user: str) -> None:
    runs = "/api/v2/dags/reprocess_flights/dagRuns"
    before = clients["admin"].get(runs).json()["total_entries"]
    assert posted(clients, user).status_code == 403
    assert status(clients, user, "reprocess?dag_id=backfill_flights") == 403
    assert clients["admin"].get(runs).json()["total_entries"] == before
    page = clients[user].get("/backstream/dataset?dag_id=backfill_flights").text
    assert "You can view this dataset, but you do not have permission to start runs." in page
    assert "Reprocess range" not in page


def test_who_may_start_runs_of_one_dataset_starts_no_other(clients: Clients) -> None:
    orders = "/backstream/reprocess?dag_id=backfill_orders"
    before = clients["admin"].get("/api/v2/dags/reprocess_orders/dagRuns").json()["total_entries"]

    assert posted(clients, "operator").status_code == 200
    assert clients["operator"].post(orders, data=RANGE, headers=OWN).status_code == 403

    assert status(clients, "operator", "dataset?dag_id=backfill_orders") == status(
        clients, "admin", "dataset?dag_id=backfill_orders"
    )
    assert status(clients, "operator", "reprocess?dag_id=backfill_flights") == 200
    assert status(clients, "operator", "reprocess?dag_id=backfill_orders") == 403
    after = clients["admin"].get("/api/v2/dags/reprocess_orders/dagRuns").json()["total_entries"]
    assert after == before


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Referer": "http://evil.example/page"},
    ],
)
def test_a_form_of_another_site_starts_nothing(clients: Clients, headers: dict[str, str]) -> None:
    answer = posted(clients, "admin", headers=headers)
    assert answer.status_code == 403
    assert "a page of another site sent this form" in answer.text


def test_a_browser_that_sends_its_origin_only_is_believed(clients: Clients) -> None:
    origin = str(clients["admin"].base_url).rstrip("/")
    answer = posted(clients, "admin", headers={"Origin": origin}, data=RANGE | {"since": "2024-02-30"})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"since": "2024-02-30"}, "since must be an instant such as"),
        ({"since": "2024-02-09"}, "the range is empty"),
        ({"since": "2024-02-10"}, "`since` is after `until`"),
        ({"reason": " "}, "a reason is required"),
        ({"mode": HOSTILE}, "mode must be one of as defined, recompute, replay, got"),
        ({"max_spark_jobs": "many"}, "must be a whole number"),
        ({"max_spark_jobs": "0"}, "Airflow did not start the run: Invalid input for param max_spark_jobs"),
        ({"delay": "5m", "mode": "recompute"}, "has no meaning with the mode recompute, in which nothing is late"),
        ({"chunk": "5h"}, "backfill.chunk must be whole days (the lake's unit), got 5h"),
        ({"color": "red"}, "color is not a field of this form, got 'red'"),
    ],
)
def test_the_form_shows_errors_and_keeps_the_entered_values(
    clients: Clients, typed: dict[str, str], said: str
) -> None:
    answer = posted(clients, "admin", data=RANGE | {"reason": "because <it>"} | typed)
    assert answer.status_code == 400
    assert said in answer.text.replace("&#39;", "'")
    assert "<script>document" not in answer.text
    if "reason" not in typed:
        assert "because &lt;it&gt;" in answer.text


@pytest.mark.parametrize("conf", REFUSED_CONFS)
def test_airflows_command_and_api_start_no_run_of_a_value_that_makes_no_sense(
    clients: Clients, server: Server, conf: dict[str, str]
) -> None:
    (name,) = conf
    body = {"logical_date": None, "conf": CONF | conf}
    answer = clients["admin"].post("/api/v2/dags/reprocess_visits/dagRuns", json=body)
    told = json.loads((server.home.path.parent / "refusals.json").read_text())[REFUSED_CONFS.index(conf)]
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(f"Invalid input for param {name}: {conf[name]!r} does not match")
    assert told is not None
    assert told.startswith(f"Invalid input for param {name}: {conf[name]!r} does not match")


def test_a_run_from_the_form_has_the_entered_range_and_reason(clients: Clients) -> None:
    answer = posted(clients, "admin", data=RANGE | {"mode": "replay"})
    assert answer.status_code == 200
    found = re.search(r'Dag run <span class="mono">(.*?)</span> of DAG', answer.text)
    assert found
    run_id = found[1].replace("&#43;", "+")
    run = clients["admin"].get(f"/api/v2/dags/reprocess_flights/dagRuns/{quote(run_id, safe='')}").json()
    assert run["conf"] == {
        "since": "2024-02-08T00:00:00Z",
        "until": "2024-02-09T00:00:00Z",
        "mode": "replay",
        "reason": "a test",
    }
    assert run["triggering_user_name"] == "admin"


def test_a_form_above_the_size_limit_is_rejected(clients: Clients) -> None:
    assert posted(clients, "admin", data={"reason": "x" * 30_000}).status_code == 413


@pytest.mark.parametrize(
    "path",
    [
        "report?dag_id=backfill_..&run_id=x",
        "report?dag_id=backfill_flights/../flights&run_id=x",
        "report?dag_id=backfill_flights&run_id=../../../airflow.cfg",
        "report?dag_id=backfill_flights&run_id=backfill__2016&plan=../../x",
        "dataset?dag_id=../../etc/passwd",
        "day?dag_id=backfill_flights&day=../../etc",
        "day?dag_id=backfill_flights&day=9999-12-31",
        f"day?dag_id=backfill_flights&day={quote('2024<b>', safe='')}",
        f"checks?dag_id={quote(HOSTILE, safe='')}",
        "..%2f..%2fetc/passwd",
        "static/..%2f..%2f..%2fetc/passwd",
        "templates/pages.css",
    ],
)
def test_a_path_that_leads_elsewhere_leads_nowhere(clients: Clients, path: str) -> None:
    answer = clients["admin"].get(f"/backstream/{path}")
    assert answer.status_code == 404
    assert "root:" not in answer.text
    assert "<script>document" not in answer.text


@pytest.mark.parametrize(
    "path", ["overview", "dataset?dag_id=backfill_orders", "checks?dag_id=backfill_orders", "runs"]
)
def test_markup_in_data_is_text(clients: Clients, path: str) -> None:
    page = clients["admin"].get(f"/backstream/{path}").text
    assert "<script>document" not in page
    assert "<img" not in page
    assert not {"\u202e", "\x07"} & set(page)
    assert "&lt;U+202E&gt;txt&lt;U+0007&gt;" in page


def test_every_response_has_a_content_security_policy(clients: Clients) -> None:
    for user, path in (("admin", "overview"), ("viewer", "dataset?dag_id=backfill_flights"), (None, "runs")):
        policy = clients[user].get(f"/backstream/{path}").headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    report = clients["admin"].get(f"/backstream/{OF_FLIGHTS[-1]}").headers["content-security-policy"]
    assert "script-src 'none'" in report
