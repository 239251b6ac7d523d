"""Run by the fixture in a process of its own: Airflow's database with its DAGs and users. One start for all."""

from __future__ import annotations

import sys

from airflow.cli.cli_parser import get_parser

READ = ["-a", "can_read"]
ONLY_FLIGHTS = "OnlyFlights"
USERS = {"admin": "Admin", "viewer": "Viewer", "flights": ONLY_FLIGHTS}
"""`flights` may read the DAGs of one dataset, and start none."""


def run(*arguments: str) -> None:
    """One command of Airflow's, in this process."""
    parsed = get_parser().parse_args(arguments)
    parsed.func(parsed)


def main(password: str) -> None:
    """Make everything that the API server needs."""
    run("db", "migrate")
    run("dags", "reserialize")
    run("roles", "create", ONLY_FLIGHTS)
    dags = [f"DAG:{kind}_flights" for kind in ("backfill", "reprocess", "restate")]
    run("roles", "add-perms", ONLY_FLIGHTS, "-r", "Website", "DAG Runs", *dags, *READ)
    for name, role in USERS.items():
        named = ["-u", name, "-f", name, "-l", name, "-e", f"{name}@example.org"]
        run("users", "create", *named, "-r", role, "-p", password)


if __name__ == "__main__":
    main(sys.argv[1])
