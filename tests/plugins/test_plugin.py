from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]
GUARDED = [
    "/overview",
    "/runs",
    "/dataset?dag_id=backfill_flights",
    "/day?dag_id=backfill_flights&day=2013-02-08",
    "/watermark?dag_id=backfill_flights",
    "/checks?dag_id=backfill_flights",
    "/reprocess?dag_id=backfill_flights",
    "/report?dag_id=backfill_flights&run_id=x",
    "/run?dag_id=backfill_flights&run_id=x",
    "/approval?dag_id=backfill_flights&run_id=x",
    "/explain?dag_id=backfill_flights&window=2013-02-08T10:00Z",
]


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the loaded plugin from a separate process: importing Airflow would configure logging."""
    home = tmp_path_factory.mktemp("airflow")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    plugins = {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__PLUGINS_FOLDER": str(CHECKOUT / "plugins")}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("ask.py")],
        env=inherited | plugins,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_airflow_loads_the_plugin_and_nothing_is_wrong_with_it(seen: Any) -> None:
    assert seen["loaded"]["errors"] == {}
    assert seen["loaded"]["prefixes"] == {"/backstream": "LazyApplication"}


def test_every_process_loads_the_plugin_so_it_builds_nothing(seen: Any) -> None:
    assert seen["loaded"]["is_built"] is False


def test_there_is_a_page_in_the_navigation_tabs_on_each_dag_and_one_on_each_run(seen: Any) -> None:
    views = seen["loaded"]["views"]
    assert [(view["name"], view["destination"], view["href"]) for view in views] == [
        ("Backfills", "nav", "backstream/overview"),
        ("Windows", "dag", "backstream/dataset?dag_id={DAG_ID}"),
        ("Watermark", "dag", "backstream/watermark?dag_id={DAG_ID}"),
        ("Report", "dag_run", "backstream/run?dag_id={DAG_ID}&run_id={RUN_ID}"),
    ]


@pytest.mark.parametrize("path", GUARDED)
def test_who_is_not_logged_in_sees_nothing(seen: Any, path: str) -> None:
    assert seen["visited"]["anonymous"][path][0] == 401


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/redoc", "/../../etc/passwd"])
def test_there_is_nothing_beside_the_guarded_routes(seen: Any, path: str) -> None:
    assert seen["visited"]["anonymous"][path][0] == 404


def test_every_route_checks_access_to_the_application_and_to_the_dag(seen: Any) -> None:
    # Airflow's database, one check for the whole application, one for the DAG; some need the user as well.
    checks = seen["visited"]["checks"]
    assert set(checks) == {path.partition("?")[0] for path in GUARDED} | {"/cancel", "/dismiss"}
    assert min(checks.values()) == 3


def test_only_the_forms_may_be_sent(seen: Any) -> None:
    assert seen["visited"]["methods"]["POST"] == ["/reprocess", "/cancel", "/dismiss", "/approval"]
    assert sorted(seen["visited"]["methods"]) == ["GET", "POST"]


def test_a_form_without_a_login_is_rejected(seen: Any) -> None:
    assert seen["visited"]["posted"] == 401


def test_no_page_may_run_or_load_anything_but_its_own_style_and_script(seen: Any) -> None:
    for _, headers in seen["visited"]["anonymous"].values():
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy.pop("style-src").startswith("'sha256-")
        assert policy.pop("script-src").startswith("'sha256-")
        assert policy == {
            "default-src": "'none'",
            "img-src": "data:",
            "font-src": "data:",
            "connect-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'self'",
            "frame-ancestors": "'self'",
        }


def test_answers_are_not_kept_and_not_guessed_at(seen: Any) -> None:
    for _, headers in seen["visited"]["anonymous"].values():
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_the_pages_find_the_lake_by_the_connections_that_tasks_use(seen: Any) -> None:
    assert seen["lake"].startswith(
        "Cannot open the catalog postgresql+psycopg2://me:***@127.0.0.1:9/lake. This page"
    )
