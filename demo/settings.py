"""How the demo's Airflow is set up: everything by environment variables, nothing from the user's own Airflow."""

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
"""Set in every process of a stack, tasks and their Spark included, to the folder that holds its state."""

_NO_PROXY = "127.0.0.1,localhost"


SPARK_DEFAULTS = {
    # A chunk of the demo lasts seconds: the JVM's thorough compiler costs more than it gains, twice as much here.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.log.level": "WARN",
    # Its files are many and small: 366 of some 60 kB.
    "spark.sql.files.openCostInBytes": "131072",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Spark:
    """Which Spark runs the chunks, and how many at the same time."""

    master: str
    chunks_at_once: int

    @classmethod
    def of_this_machine(cls) -> Spark:
        """A core for each chunk: most of a short job is not parallel, so two jobs beat one on two cores."""
        return cls("local[1]", chunks_at_once=min(4, max(2, os.cpu_count() or 1)))


@dataclass(frozen=True, slots=True)
class Place:
    """Where one Airflow lives: its state, and the ports it listens on."""

    home: Path
    api_port: int
    worker_log_port: int
    trigger_log_port: int

    @classmethod
    def with_free_ports(cls, home: Path) -> Place:
        """Ports that nobody listens on now."""
        return cls(home, *free_ports(3))

    @property
    def airflow(self) -> Path:
        """Airflow's own folder: database, logs, secrets."""
        return self.home / "airflow"

    @property
    def spark_conf(self) -> Path:
        """Where Spark looks for its defaults."""
        return self.airflow / "spark"

    @property
    def url(self) -> str:
        """The user interface."""
        return f"http://127.0.0.1:{self.api_port}"


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the processes share and the user logs in with; made once per state folder, readable by its owner."""

    password: str
    jwt_secret: str
    secret_key: str

    @classmethod
    def kept_in(cls, folder: Path) -> Secrets:
        """Those of the folder, made when it has none yet."""
        path = folder / "secrets.json"
        if path.exists():
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        made = {"password": secrets.token_urlsafe(9)}
        made |= {name: secrets.token_urlsafe(32) for name in ("jwt_secret", "secret_key")}
        folder.mkdir(parents=True, exist_ok=True)
        _write_private(path, json.dumps(made))
        _write_private(folder / "passwords.json", json.dumps({USER: made["password"]}))
        return cls(**made)


def environment(place: Place, known: Secrets, spark: Spark) -> dict[str, str]:
    """All that a process of the stack needs to know, on top of the user's environment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    return inherited | _process(place) | _airflow(place, known, spark) | _spark(place, spark)


def _process(place: Place) -> dict[str, str]:
    return {
        STATE_VARIABLE: str(place.home),
        "BACKSTREAM_HOME": str(place.home),
        # Airflow alone is 4 s of compiling; where it is not kept, every task does it again.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONUNBUFFERED": "1",
        "GX_ANALYTICS_ENABLED": "False",
        "NO_PROXY": _NO_PROXY,
        "no_proxy": _NO_PROXY,
    }


def _airflow(place: Place, known: Secrets, spark: Spark) -> dict[str, str]:
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
        # SQLite lets one process write at a time; the others wait for as long as this.
        "database": {"sql_alchemy_conn": f"sqlite:///{place.airflow / 'airflow.db'}?timeout=60"},
        "api": {
            "host": "127.0.0.1",
            "port": place.api_port,
            "base_url": place.url,
            "workers": 1,
            "secret_key": known.secret_key,
        },
        "api_auth": {"jwt_secret": known.jwt_secret},
        "logging": {
            "base_log_folder": place.airflow / "logs",
            "worker_log_server_port": place.worker_log_port,
            "trigger_log_server_port": place.trigger_log_port,
        },
        "scheduler": {"max_dagruns_per_loop_to_schedule": 100, "scheduler_idle_sleep_time": 0.5},
        "usage_data_collection": {"enabled": False},
    }
    named = {"AIRFLOW_HOME": str(place.airflow)}
    for section, values in options.items():
        named |= {f"AIRFLOW__{section}__{key}".upper(): str(value) for key, value in values.items()}
    return named


def _spark(place: Place, spark: Spark) -> dict[str, str]:
    return {
        "AIRFLOW_CONN_BACKSTREAM_SPARK": json.dumps({"conn_type": "spark", "host": spark.master}),
        "SPARK_CONF_DIR": str(place.spark_conf),
        # Otherwise Spark asks the network for this machine's address.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def write_spark_defaults(place: Place) -> None:
    """Write what every Spark job of the stack is set to."""
    place.spark_conf.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in SPARK_DEFAULTS.items()]
    (place.spark_conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")


def airflow_command(*arguments: str) -> list[str]:
    """The command line of this environment's Airflow."""
    return [sys.executable, "-m", "airflow", *arguments]


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on now; all are held at once, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
