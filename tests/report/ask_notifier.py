"""Print the messages of a notifier. This is a separate process, because importing Airflow configures it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier
from tests.report.example_run import DEFINITION, LATE, MISSING, PASSED, PLAN, PUBLICATION, audit

from backstream.orchestration.notifications import VerdictNotifier
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Verdict

SENT: list[str] = []


class Chat(BaseNotifier):
    """Notifier with a templated message, like those of providers."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        """Store the message."""
        SENT.append(self.text)


class TaskInstance:
    """The part of a task instance that a callback uses."""

    task_id = "report"
    dag_id, run_id = "backfill_clicks", "manual__2026-03-06T00:00:00+00:00"
    log_url = "https://airflow.example/at/dags/backfill_clicks/runs/manual/tasks/audit?try_number=1"

    def __init__(self, plan_file: Path | None) -> None:
        self.plan_file = plan_file

    def xcom_pull(self, task_ids: str, key: str) -> str | None:
        """Return the result of the `plan` task."""
        return str(self.plan_file) if (task_ids, key) == ("plan", "plan") and self.plan_file else None


def judged(home: Path, found: Audit | None) -> Path:
    """Write a run that ended after or before its audit."""
    plan: Plan = replace(PLAN, home_location=str(home), definition=DEFINITION.model_dump(mode="json"))
    if found:
        found.write(plan.folder.audit_result)
    if found and found.verdict is Verdict.WARN:
        PUBLICATION.write(plan.folder.publication)
    return plan.write()


def main(folder: Path) -> None:
    """Print the messages for each kind of run, and whether the template is unchanged."""
    chat = Chat("{{ backstream.verdict }} | {{ backstream.text }}")
    tell = VerdictNotifier(chat)
    told = {}
    for name, found in {
        "pass": audit(Verdict.PASS, PASSED),
        "warn": audit(Verdict.WARN, PASSED, MISSING),
        "fail": audit(Verdict.FAIL, LATE),
        "not judged": None,
    }.items():
        SENT.clear()
        tell({"ti": TaskInstance(judged(folder / name, found))})
        told[name] = list(SENT)
    SENT.clear()
    tell({"ti": TaskInstance(None)})
    print(json.dumps(told | {"no plan": SENT, "template": chat.text}))  # noqa: T201 - the answer


main(Path(sys.argv[1]))
