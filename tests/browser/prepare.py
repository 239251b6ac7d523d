"""Create Airflow's database with DAGs, roles, and users. The fixture runs this in a separate process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from airflow.cli.cli_parser import get_parser
from airflow.models.dagbag import DBDagBag
from airflow.models.hitl import HITLDetail
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
from airflow.sdk import timezone
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from tests.browser.seed import CONF, DAG_ID, REFUSED_CONFS, TEAM_RUN, WAITING
from tests.house.compose import commands

from backstream.ui.app import application

ONLY_FLIGHTS = "OnlyFlights"
"""Role that can read the DAGs of one dataset and start none."""
RUNS_FLIGHTS = "RunsFlights"
"""Role that can read all DAGs and start those of one dataset."""
USERS = {"flights": ONLY_FLIGHTS, "operator": RUNS_FLIGHTS}
"""Users in addition to `admin` and `viewer` of the compose file."""
OF_FLIGHTS = ("DAG:backfill_flights", "DAG:reprocess_flights")
GRANTED: dict[str, dict[str, tuple[str, ...]]] = {
    ONLY_FLIGHTS: {"can_read": ("Website", "DAG Runs", *OF_FLIGHTS)},
    RUNS_FLIGHTS: {
        "can_read": ("Website", "DAGs", "DAG Runs"),
        "can_create": ("DAG Runs",),
        "can_edit": OF_FLIGHTS,
    },
}


def run(*arguments: str) -> None:
    """Run a command of Airflow in this process."""
    parsed = get_parser().parse_args(arguments)
    parsed.func(parsed)


def park(dag_id: str, run_id: str, group: str, session: Any) -> None:
    """Create a run whose task `approve` waits for an answer, as if its tasks had run."""
    dag: Any = DBDagBag().get_latest_version_of_dag(dag_id, session=session)
    run = dag.create_dagrun(
        run_id=run_id,
        run_after=timezone.utcnow(),
        run_type=DagRunType.MANUAL,
        triggered_by=DagRunTriggeredByType.TEST,
        state=DagRunState.RUNNING,
        conf={"since": "2024-03-16T00:00:00Z", "until": "2024-03-18T00:00:00Z", "reason": "late files"},
        session=session,
    )
    states = {
        f"{group}plan": "success",
        f"{group}audit": "success",
        f"{group}approve": TaskInstanceState.AWAITING_INPUT,
    }
    for ti in run.get_task_instances(session=session):
        ti.state = states.get(ti.task_id)
        if ti.task_id == f"{group}approve":
            session.add(HITLDetail(ti_id=ti.id, options=["Approve", "Reject"], subject="Publish?", multiple=False))


def write_refusals(file: Path) -> None:
    """Write the error of `airflow dags trigger` for each of `REFUSED_CONFS`; null if it starts a run."""
    found: list[str | None] = []
    for conf in REFUSED_CONFS:
        try:
            run("dags", "trigger", "reprocess_visits", "--conf", json.dumps(CONF | conf))
            found.append(None)
        except Exception as error:  # noqa: BLE001 - the answer is its message
            found.append(str(error))
    file.write_text(json.dumps(found), encoding="utf-8")


def write_routes(file: Path) -> None:
    """Write the paths of the pages by method, for tests that may not import Airflow."""
    found: dict[str, list[str]] = {}
    routes: list[Any] = list(application().routes)
    for route in routes:
        for method in route.methods:
            found.setdefault(method, []).append(route.path)
    file.write_text(json.dumps(found), encoding="utf-8")


def main(password: str) -> None:
    """Create everything that the API server needs."""
    for line in commands("init"):  # word for word what the compose file does once
        run(*(password if word.endswith("_PASSWORD") else word for word in line[1:]))
    run("dags", "reserialize")
    with get_application_builder() as builder:
        security = builder.sm
        for name, actions in GRANTED.items():
            role = security.add_role(name)
            for action, resources in actions.items():
                for resource in resources:
                    security.add_permission_to_role(role, security.create_permission(action, resource))
        for name, role_name in USERS.items():
            told = {"email": f"{name}@example.org", "role": security.find_role(role_name), "password": password}
            security.add_user(name, name, name, **told)
    write_routes(Path("routes.json"))
    write_refusals(Path("refusals.json"))
    with create_session() as session:
        for run_id in WAITING:
            park(DAG_ID, run_id, "", session)
        park(*TEAM_RUN, "load.", session)


if __name__ == "__main__":
    main(sys.argv[1])
