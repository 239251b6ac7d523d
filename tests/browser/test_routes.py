"""Test every route of the pages with each role, and with hostile text in everything that it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.addresses import HOSTILE_READ, READ, SENT
from tests.browser.server import Server

if TYPE_CHECKING:
    import httpx

pytestmark = pytest.mark.e2e

Clients = dict[str | None, "httpx.Client"]
OWN = {"Sec-Fetch-Site": "same-origin"}
MADE_VISIBLE = "<U+202E>txt<U+0007>"


def routes(server: Server) -> dict[str, list[str]]:
    """Return the paths of the application by method, as its own list has them."""
    found: dict[str, list[str]] = json.loads((server.home.path.parent / "routes.json").read_text())
    return found


def stored_files(folder: Path) -> dict[str, int]:
    """Return the modification time of each file below a folder."""
    return {str(file): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def test_no_route_is_left_out_of_these_tests(server: Server) -> None:
    found = routes(server)
    assert (set(found["GET"]), set(found["POST"])) == (set(READ), set(SENT))
    assert set(HOSTILE_READ) == set(READ)
    assert set(found) == {"GET", "POST"}


@pytest.mark.parametrize("path", sorted(READ))
def test_a_viewer_reads_every_page_and_a_user_without_a_login_reads_none(clients: Clients, path: str) -> None:
    for address in READ[path]:
        answer = clients["viewer"].get(f"/backstream/{address}")
        # The form starts runs, so it says that a viewer may not.
        assert answer.status_code == (403 if path == "/reprocess" else 200), address
        if path != "/report":
            assert '<form method="post"' not in answer.text
            assert 'method="post"' not in answer.text
        assert clients[None].get(f"/backstream/{address}").status_code == 401


@pytest.mark.parametrize("path", sorted(SENT))
@pytest.mark.parametrize("user", ["viewer", "flights", None])
def test_who_may_only_read_writes_nothing_on_any_route(
    server: Server, clients: Clients, path: str, user: str | None
) -> None:
    def state() -> object:
        runs = clients["admin"].get("/api/v2/dags/~/dagRuns").json()["dag_runs"]
        waiting = clients["admin"].get("/api/v2/dags/~/dagRuns/~/hitlDetails").json().get("hitl_details", [])
        answered = [each["response_received"] for each in waiting]
        return sorted((run["dag_run_id"], run["state"]) for run in runs), answered, stored_files(server.home.path)

    (address, form), before = SENT[path], state()
    answer = clients[user].post(f"/backstream/{address}", data=form, headers=OWN)
    assert answer.status_code == (401 if user is None else 403)
    assert state() == before


def test_reading_changes_no_file(server: Server, clients: Clients) -> None:
    before = stored_files(server.home.path)
    for address in (address for addresses in READ.values() for address in addresses):
        clients["viewer"].get(f"/backstream/{address}")
    assert {file: at for file, at in stored_files(server.home.path).items() if before.get(file) != at} == {}


@pytest.mark.parametrize("path", sorted(HOSTILE_READ))
def test_hostile_text_is_text_on_every_route(clients: Clients, path: str) -> None:
    for address in HOSTILE_READ[path]:
        answer = clients["admin"].get(f"/backstream/{address}")
        assert answer.status_code < 500, address
        assert not {"\u202e", "\x07"} & set(answer.text), address
        if "format=csv" in address:
            assert answer.headers["content-type"] == "text/csv; charset=utf-8"
            assert "attachment" in answer.headers["content-disposition"]
        else:
            assert "<script>document" not in answer.text, address
            assert "<img" not in answer.text, address


@pytest.mark.parametrize(
    "path", ["/overview", "/runs", "/dataset", "/day", "/checks", "/run", "/approval", "/explain"]
)
def test_the_hostile_text_of_the_seed_is_on_the_page_at_all(clients: Clients, path: str) -> None:
    pages = [clients["admin"].get(f"/backstream/{address}").text for address in HOSTILE_READ[path]]
    escaped = MADE_VISIBLE.replace("<", "&lt;").replace(">", "&gt;")
    assert any(escaped in page for page in pages)
