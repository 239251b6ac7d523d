"""A real Airflow on this machine: scheduler, DAG processor and API server as processes, on free ports.

Its whole state lies in one folder and survives a restart; nothing of it runs on when it is left.
"""

from __future__ import annotations

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
OTHERS = ("scheduler", "dag-processor")
POOL = "spark"

_MIGRATION_LIMIT_S = 300.0
_HEALTH_LIMIT_S = 180.0
_POLL_S = 0.25


class Stack:
    """Use as a context: entering begins to set up the database, `start` brings up the rest, leaving ends all."""

    def __init__(
        self,
        home: Path,
        spark: Spark | None = None,
        settings: Mapping[str, str] | None = None,
        commands: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """What is said is used instead of, or beside, what is the demo's.

        Args:
            home: the state folder.
            spark: where Spark runs.
            settings: environment variables of the processes.
            commands: the command line of each service by its name; `{port}` stands for the API server's port.
        """
        self.place = Place.with_free_ports(home.resolve())
        self._commands = {name: airflow_command(name) for name in (API_SERVER, *OTHERS)} | dict(commands or {})
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
        """Where the processes' output goes."""
        return self.place.airflow / "processes"

    def __enter__(self) -> Self:
        """Take the state folder and begin to set up its database.

        Raises:
            StackError: when another stack uses the folder.
        """
        self._lock = locked(self.place.airflow / "stack.lock")
        end(self._processes)  # what a stack that was killed has left behind
        write_spark_defaults(self.place)
        known = Secrets.kept_in(self.place.airflow)
        self.password = known.password
        self._env = environment(self.place, known, self.spark) | self._settings
        if not self._migrated.exists():
            self._migration = self._started("db-migrate", airflow_command("db", "migrate"))
        return self

    def start(self) -> AirflowApi:
        """Bring the services up and return a client that is logged in, once all of them are healthy.

        Raises:
            StackError: naming the process that died or is not healthy in time, with the end of its log.
        """
        self._finish_migration()
        api = AirflowApi(self.place.url, USER, self.password)
        self._services.append(self._service(API_SERVER))
        if self._unsettled.exists():
            # Before there is a scheduler: it would go on with the unfinished, and on SQLite both would block.
            self.wait_until("has its database", lambda: _healthy(api, "metadatabase"))
            api.log_in()
            api.settle()
        self._unsettled.touch()
        for name in self._commands:
            if name != API_SERVER:
                self._services.append(self._service(name))
        self.wait_until("is healthy", lambda: _healthy(api, "metadatabase", "scheduler", "dag_processor"))
        api.log_in()
        api.set_pool(POOL, self.spark.chunks_at_once)
        self._api = api
        return api

    def wait_until(self, what: str, done: Callable[[], bool], limit_s: float = _HEALTH_LIMIT_S) -> None:
        """Ask again and again, as long as every process is alive.

        Raises:
            StackError: when a process died, or the time is over.
        """
        until = time.monotonic() + limit_s
        while not done():
            self.require_alive()
            if time.monotonic() > until:
                msg = "\n".join([f"waited {limit_s:.0f} s for Airflow until it {what}", *self.tails()])
                raise StackError(msg)
            time.sleep(_POLL_S)

    def tails(self) -> list[str]:
        """The last that each process has printed."""
        return [service.tail() for service in self._services]

    def require_alive(self) -> None:
        """Check that every process runs.

        Raises:
            StackError: with the end of the log of one that does not.
        """
        for service in self._services:
            service.require_alive()

    def crash(self, name: str) -> None:
        """Kill a service without a word, and start it again: what an out-of-memory killer and a supervisor do."""
        number = next(number for number, each in enumerate(self._services) if each.name == name)
        self._services[number].process.kill()
        self._services[number].process.wait()
        self._services[number] = self._service(name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process of the stack, and give the state folder back; unfinished runs become failed ones."""
        with undisturbed():
            self._end_all()
        if self._lock:
            self._lock.close()

    def _end_all(self) -> None:
        if self._api:
            server = self._services[0]
            end(lambda: [each for each in self._processes() if not server.has(each)])
            with suppress(ApiError):  # then the next start does it
                self._api.settle()
                self._unsettled.unlink()
            self._api.close()
        end(self._processes)
        for service in self._services:
            service.process.wait()  # all have ended: nobody is left that nobody has asked how it went
        self._roster.unlink(missing_ok=True)

    def _processes(self) -> list[psutil.Process]:
        return owned(self.place.home, self._roster)

    def left_over(self) -> int:
        """How many processes of the stack run: 0 once it was left."""
        return len(self._processes())

    @property
    def _migrated(self) -> Path:
        """Says that the database is that of the installed Airflow: asking Airflow itself takes seconds."""
        return self.place.airflow / f"database-of-{version('apache-airflow')}"

    @property
    def _unsettled(self) -> Path:
        """Says that Airflow may have left something unfinished."""
        return self.place.airflow / "unsettled"

    @property
    def _roster(self) -> Path:
        """The processes started, for the next stack to end should this one be killed."""
        return self.place.airflow / "processes.txt"

    def _service(self, name: str) -> Service:
        return self._started(name, self.command(self._commands[name]))

    def command(self, words: Sequence[str]) -> list[str]:
        """A command line with the ports of this stack in it."""
        return [word.format(port=self.place.api_port) for word in words]

    @property
    def environment(self) -> Mapping[str, str]:
        """What its processes find in their environment."""
        return self._env

    def _started(self, name: str, command: list[str]) -> Service:
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
