"""Configure the demo's Airflow with environment variables, and without the Airflow of the user."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
USER = "admin"
STATE_VARIABLE = "BACKSTREAM_STACK"
"""Variable with the state folder in all processes of a stack, with those of tasks and Spark."""

_NO_PROXY = "127.0.0.1,localhost"


SPARK_DEFAULTS = {
    # A chunk of the demo takes seconds, and Java's optimizing compiler would take longer than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.log.level": "WARN",
    # The source has many small files: 366 of some 60 kB.
    "spark.sql.files.openCostInBytes": "131072",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Spark:
    """Spark master, and the number of concurrent Spark jobs."""

    master: str
    chunks_at_once: int

    @classmethod
    def of_this_machine(cls) -> Spark:
        """Return a local Spark with one core per job, because most of a short job is not parallel."""
        return cls("local[1]", chunks_at_once=min(4, max(2, os.cpu_count() or 1)))


@dataclass(frozen=True, slots=True)
class Place:
    """State folder and ports of one Airflow."""

    home: Path
    api_port: int
    worker_log_port: int
    trigger_log_port: int

    @classmethod
    def with_free_ports(cls, home: Path) -> Place:
        """Return a place with free ports."""
        return cls(home, *free_ports(3))

    @property
    def airflow(self) -> Path:
        """Folder of Airflow: database, logs, and secrets."""
        return self.home / "airflow"

    @property
    def database(self) -> Path:
        """Database of Airflow."""
        return self.airflow / "airflow.db"

    @property
    def spark_conf(self) -> Path:
        """Folder of Spark's settings."""
        return self.airflow / "spark"

    @property
    def url(self) -> str:
        """Address of the user interface."""
        return f"http://127.0.0.1:{self.api_port}"


@dataclass(frozen=True, slots=True)
class Secrets:
    """Password of the user and shared secrets of the processes, in a private file per state folder."""

    password: str
    jwt_secret: str
    secret_key: str

    @classmethod
    def kept_in(cls, folder: Path) -> Secrets:
        """Return the secrets of the folder, and create them if they don't exist."""
        path = folder / "secrets.json"
        if path.exists():
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        created = {"password": secrets.token_urlsafe(9)}
        created |= {name: secrets.token_urlsafe(32) for name in ("jwt_secret", "secret_key")}
        folder.mkdir(parents=True, exist_ok=True)
        _write_private(path, json.dumps(created))
        _write_private(folder / "passwords.json", json.dumps({USER: created["password"]}))
        return cls(**created)


def environment(place: Place, keys: Secrets, spark: Spark) -> dict[str, str]:
    """Return the environment of the processes: all settings, and the variables of the user except Airflow's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    return inherited | _process(place) | _airflow(place, keys, spark) | _spark(place, spark)


def _process(place: Place) -> dict[str, str]:
    return {
        STATE_VARIABLE: str(place.home),
        "BACKSTREAM_HOME": str(place.home),
        # Without bytecode files, each task compiles Airflow again, which takes 4 s.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONUNBUFFERED": "1",
        "GX_ANALYTICS_ENABLED": "False",
        "NO_PROXY": _NO_PROXY,
        "no_proxy": _NO_PROXY,
    }


def _airflow(place: Place, keys: Secrets, spark: Spark) -> dict[str, str]:
    options: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": CHECKOUT / "dags",
            "plugins_folder": CHECKOUT / "plugins",
            "load_examples": False,
            "executor": "LocalExecutor",
            "parallelism": spark.chunks_at_once + 2,
            "execution_api_server_url": f"{place.url}/execution/",
            "simple_auth_manager_users": f"{USER}:admin",
            "simple_auth_manager_passwords_file": place.airflow / "passwords.json",
        },
        # With SQLite, one process writes at a time, and the others wait up to this timeout.
        "database": {"sql_alchemy_conn": f"sqlite:///{place.database}?timeout=60"},
        "api": {
            "host": "127.0.0.1",
            "port": place.api_port,
            "base_url": place.url,
            "workers": 1,
            "secret_key": keys.secret_key,
        },
        "api_auth": {"jwt_secret": keys.jwt_secret},
        "logging": {
            "base_log_folder": place.airflow / "logs",
            "worker_log_server_port": place.worker_log_port,
            "trigger_log_server_port": place.trigger_log_port,
        },
        "scheduler": {"max_dagruns_per_loop_to_schedule": 100, "scheduler_idle_sleep_time": 0.5},
        "usage_data_collection": {"enabled": False},
    }
    variables = {"AIRFLOW_HOME": str(place.airflow)}
    for section, values in options.items():
        variables |= {f"AIRFLOW__{section}__{key}".upper(): str(value) for key, value in values.items()}
    return variables


def _spark(place: Place, spark: Spark) -> dict[str, str]:
    return {
        "AIRFLOW_CONN_BACKSTREAM_SPARK": json.dumps({"conn_type": "spark", "host": spark.master}),
        "SPARK_CONF_DIR": str(place.spark_conf),
        # Otherwise Spark looks up the address of this machine in the network.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def write_spark_defaults(place: Place) -> None:
    """Write the settings of all Spark jobs of the stack."""
    place.spark_conf.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in SPARK_DEFAULTS.items()]
    (place.spark_conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")


def airflow_command(*arguments: str, python: str | Path = sys.executable) -> list[str]:
    """Return the command line of the Airflow of a Python."""
    return [str(python), "-m", "airflow", *arguments]


def free_ports(count: int) -> list[int]:
    """Return different free ports of this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]  # all open at once, so they differ
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
