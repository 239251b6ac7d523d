"""Run a local Airflow: scheduler, DAG processor, and API server as processes, on free ports.

All state is in one folder and survives a restart. No process is left after the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from demo.airflow_api import AirflowApi, ApiError
from demo.processes import Service, StackError, end, locked, owned, remember, undisturbed
from demo.settings import USER, Place, Secrets, Spark, airflow_command, environment, write_spark_defaults

API_SERVER = "api-server"
OTHERS = ("scheduler", "dag-processor", "triggerer")
"""The triggerer has nothing to do, but without one Airflow's first page shows an unhealthy part."""
POOL = "spark"

_MIGRATION_LIMIT_S = 300.0
_HEALTH_LIMIT_S = 180.0
_POLL_S = 0.25


class Stack:
    """Context manager of a local Airflow: entering sets up the database, and leaving ends all processes."""

    def __init__(
        self,
        home: Path,
        spark: Spark | None = None,
        settings: Mapping[str, str] | None = None,
        commands: Mapping[str, Sequence[str]] | None = None,
        python: str | Path = sys.executable,
    ) -> None:
        """Create a stack; the arguments replace or extend the settings of the demo.

        Args:
            home: state folder.
            spark: Spark of the jobs.
            settings: environment variables of the processes.
            commands: command lines by service name; `{port}` is replaced by the port of the API server.
            python: Python of the environment with Airflow.
        """
        self.place = Place.with_free_ports(home.resolve())
        self._python = python
        own = {name: airflow_command(name, python=python) for name in (API_SERVER, *OTHERS)}
        self._commands: dict[str, Sequence[str]] = {**own, **(commands or {})}
        self.spark = spark or Spark.of_this_machine()
        self.password = ""
        self._settings = dict(settings or {})
        self._env: dict[str, str] = {}
        self._services: list[Service] = []
        self._migration: Service | None = None
        self._api: AirflowApi | None = None
        self._lock: IO[str] | None = None

    @property
    def login(self) -> str:
        """User and password of the user interface."""
        return f"{USER} / {self.password}"

    @property
    def logs(self) -> Path:
        """Folder of the log files of the processes."""
        return self.place.airflow / "processes"

    def __enter__(self) -> Self:
        """Lock the state folder, and start the setup of its database.

        Raises:
            StackError: when another stack uses the folder.
        """
        self._lock = locked(self.place.airflow / "stack.lock")
        end(self._processes)  # processes of a stack that was killed
        write_spark_defaults(self.place)
        keys = Secrets.kept_in(self.place.airflow)
        self.password = keys.password
        self._env = environment(self.place, keys, self.spark) | self._settings
        if not self._migrated.exists():
            self.place.database.touch(mode=0o600)  # with password hashes and connections
            self._migration = self._start_service(
                "db-migrate", airflow_command("db", "migrate", python=self._python)
            )
        return self

    def start(self) -> AirflowApi:
        """Start the services, wait until they are healthy, and return a client that is logged in.

        Raises:
            StackError: with the end of the log, when a process died or did not become healthy in time.
        """
        self._finish_migration()
        api = AirflowApi(self.place.url, USER, self.password)
        self._services.append(self._start_named(API_SERVER))
        if self._unsettled.exists():
            # Before the scheduler starts: it would resume unfinished runs, and both would block on SQLite.
            self.wait_until("has its database", lambda: _healthy(api, "metadatabase"))
            api.log_in()
            api.settle()
        self._unsettled.touch()
        for name in self._commands:
            if name != API_SERVER:
                self._services.append(self._start_named(name))
        self.wait_until("is healthy", lambda: _healthy(api, "metadatabase", "scheduler", "dag_processor"))
        api.log_in()
        api.set_pool(POOL, self.spark.chunks_at_once)
        self._api = api
        return api

    def wait_until(self, what: str, done: Callable[[], bool], limit_s: float = _HEALTH_LIMIT_S) -> None:
        """Wait until a condition is true, while all processes are alive.

        Raises:
            StackError: when a process died, or after the time limit.
        """
        deadline_s = time.monotonic() + limit_s
        while not done():
            self.require_alive()
            if time.monotonic() > deadline_s:
                msg = "\n".join([f"waited {limit_s:.0f} s for Airflow until it {what}", *self.tails()])
                raise StackError(msg)
            time.sleep(_POLL_S)

    def tails(self) -> list[str]:
        """Return the end of the log of each process."""
        return [service.tail() for service in self._services]

    def require_alive(self) -> None:
        """Check that all processes are alive.

        Raises:
            StackError: with the end of the log of a process that has ended.
        """
        for service in self._services:
            service.require_alive()

    def crash(self, name: str) -> None:
        """Kill a service and start it again, as an out-of-memory killer and a supervisor do."""
        number = next(number for number, service in enumerate(self._services) if service.name == name)
        self._services[number].process.kill()
        self._services[number].process.wait()
        self._services[number] = self._start_named(name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes, fail unfinished runs, and unlock the state folder."""
        with undisturbed():
            self._end_all()
        if self._lock:
            self._lock.close()

    def _end_all(self) -> None:
        if self._api:
            server = self._services[0]
            end(lambda: [process for process in self._processes() if not server.has(process)])
            with suppress(ApiError):  # the next start does it
                self._api.settle()
                self._unsettled.unlink()
            self._api.close()
        end(self._processes)
        for service in self._services:
            service.process.wait()  # all have ended; this removes the zombies
        self._roster.unlink(missing_ok=True)

    def _processes(self) -> list[psutil.Process]:
        return owned(self.place.home, self._roster)

    def left_over(self) -> int:
        """Return the number of processes of the stack; 0 after leaving the context."""
        return len(self._processes())

    @property
    def _migrated(self) -> Path:
        """Marker file for a migrated database of the installed Airflow; a check by Airflow takes seconds."""
        return self.place.airflow / f"database-of-{version('apache-airflow')}"

    @property
    def _unsettled(self) -> Path:
        """Marker file for runs that can be unfinished."""
        return self.place.airflow / "unsettled"

    @property
    def _roster(self) -> Path:
        """File with the started processes, which the next stack ends if this one was killed."""
        return self.place.airflow / "processes.txt"

    def _start_named(self, name: str) -> Service:
        return self._start_service(name, self.command(self._commands[name]))

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command line with the port of this stack."""
        return [word.format(port=self.place.api_port) for word in words]

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of the processes."""
        return self._env

    def _start_service(self, name: str, command: list[str]) -> Service:
        service = Service.started(name, command, self.logs, self._env)
        remember(service, self._roster)
        return service

    def _finish_migration(self) -> None:
        if self._migration:
            self._migration.require_success(_MIGRATION_LIMIT_S)
            self._migration = None
            self._migrated.touch()


def _healthy(api: AirflowApi, *parts: str) -> bool:
    health = api.health()
    return all((health.get(part) or {}).get("status") == "healthy" for part in parts)
