"""Create Airflow's database with DAGs, roles, and users. The fixture runs this in a separate process."""

from __future__ import annotations

import sys

from airflow.cli.cli_parser import get_parser
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
from tests.house.compose import commands

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


if __name__ == "__main__":
    main(sys.argv[1])
