"""Run by the fixture in a process of its own: Airflow's database with its DAGs, roles and users."""

from __future__ import annotations

import sys

from airflow.cli.cli_parser import get_parser
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

ONLY_FLIGHTS = "OnlyFlights"
"""May read the DAGs of one dataset, and start none."""
RUNS_FLIGHTS = "RunsFlights"
"""May read all DAGs, and start those of one dataset."""
USERS = {"admin": "Admin", "viewer": "Viewer", "flights": ONLY_FLIGHTS, "operator": RUNS_FLIGHTS}
OF_FLIGHTS = ("DAG:backfill_flights", "DAG:reprocess_flights")
GRANTED = {
    ONLY_FLIGHTS: {"can_read": ("Website", "DAG Runs", *OF_FLIGHTS)},
    RUNS_FLIGHTS: {
        "can_read": ("Website", "DAGs", "DAG Runs"),
        "can_create": ("DAG Runs",),
        "can_edit": OF_FLIGHTS,
    },
}


def run(*arguments: str) -> None:
    """One command of Airflow's, in this process."""
    parsed = get_parser().parse_args(arguments)
    parsed.func(parsed)


def main(password: str) -> None:
    """Make everything that the API server needs."""
    run("db", "migrate")
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


if __name__ == "__main__":
    main(sys.argv[1])
