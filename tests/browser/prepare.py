"""Run by the fixture in a process of its own: Airflow's database with its DAGs, roles and users."""

from __future__ import annotations

import sys

from airflow.cli.cli_parser import get_parser
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

ONLY_FLIGHTS = "OnlyFlights"
"""May read the DAGs of one dataset, and start none."""
USERS = {"admin": "Admin", "viewer": "Viewer", "flights": ONLY_FLIGHTS}


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
        role = security.add_role(ONLY_FLIGHTS)
        for resource in ("Website", "DAG Runs", "DAG:backfill_flights", "DAG:reprocess_flights"):
            security.add_permission_to_role(role, security.create_permission("can_read", resource))
        for name, role_name in USERS.items():
            told = {"email": f"{name}@example.org", "role": security.find_role(role_name), "password": password}
            security.add_user(name, name, name, **told)


if __name__ == "__main__":
    main(sys.argv[1])
