from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LINK = (
    "https://airflow.example/at/dags/backfill_clicks/runs/manual__2026-03-06T00%3A00%3A00%2B00%3A00"
    "/plugin/backstream_report"
)


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the messages of a notifier for each kind of run; one process, because Airflow starts slowly."""
    folder = tmp_path_factory.mktemp("notified")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("ask_notifier.py"), folder],
        env=inherited | {"AIRFLOW_HOME": str(folder / "airflow"), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


EXPLAIN = "https://airflow.example/at/backstream/explain?dag_id=backfill_clicks&window="


def test_the_alert_of_a_warning_has_the_summary_and_a_link_to_the_report(sent: Any) -> None:
    (text,) = sent["warn"]

    assert text == (
        "warn | clicks, 1 Mar 2026 to 4 Mar 2026: warn: 3 of 192 windows have no event; "
        f"98,765 rows published, replacing 4,321 rows\n{LINK}\n"
        "warn: expected windows have events: 3 of 192 windows do not\n"
        "  north 2026-03-01 06:00: expected 50 events, found no event"
        f"  (backstream show clicks)  {EXPLAIN}2026-03-01T06%3A00Z\n"
        "  south 2026-03-02 06:00 to 2026-03-02 08:00, 2 windows: expected 50 events, found no event"
        f"  (backstream show clicks)  {EXPLAIN}2026-03-02T06%3A00Z"
    )


def test_the_alert_of_a_refused_run_uses_the_same_template(sent: Any) -> None:
    (text,) = sent["fail"]

    assert text.startswith(
        "fail | clicks, 1 Mar 2026 to 4 Mar 2026: fail: 3 of 192 windows have no event; nothing"
    )
    assert sent["template"] == "{{ backstream.verdict }} | {{ backstream.text }}"


@pytest.mark.parametrize("kind", ["pass", "not judged", "no plan"])
def test_no_alert_is_sent_for_a_pass_or_without_an_audit(sent: Any, kind: str) -> None:
    assert sent[kind] == []
