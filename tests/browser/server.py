"""Run a real Airflow API server with the plugin, users, roles, and a home with history."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from demo.settings import airflow_command, free_ports
from tests.browser.seed import define, seed

from backstream.runs.home import Home

CHECKOUT = Path(__file__).parents[2]
FAB = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
PASSWORD = "a password of a test"  # noqa: S105 - of a server that only this machine sees
_START_LIMIT_S = 400.0
_TEAM_DAG = """
from airflow.sdk import DAG
from backstream.airflow import BackfillTaskGroup

with DAG("weekly", schedule=None):
    BackfillTaskGroup("load", "flights", since="2024-03-20T00:00:00Z", until="2024-03-21T00:00:00Z")
"""


@dataclass(frozen=True, slots=True)
class Server:
    """Address and home of the server."""

    url: str
    home: Home

    def client(self, user: str | None) -> httpx.Client:
        """Return a client for a logged-in user; anonymous for None."""
        client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        if user:
            answer = client.post("/auth/token", json={"username": user, "password": PASSWORD})
            client.headers["Authorization"] = f"Bearer {answer.raise_for_status().json()['access_token']}"
        return client


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Run the server until the block ends."""
    home, definitions = Home(folder / "home"), folder / "definitions"
    (port,) = free_ports(1)
    env = _environment(folder, home, definitions, port)
    define(definitions)
    _add_dags(folder / "dags")
    with (folder / "airflow.log").open("wb") as log:
        prepare = [sys.executable, str(Path(__file__).with_name("prepare.py")), PASSWORD]
        preparing = subprocess.Popen(prepare, env=env, cwd=folder, stdout=log, stderr=log)
        try:
            seed(home, definitions)
            assert preparing.wait(_START_LIMIT_S) == 0, _end_of(folder / "airflow.log")
        finally:
            preparing.kill()
        server = subprocess.Popen(
            airflow_command("api-server"), env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, server, folder / "airflow.log")
        yield Server(url, home)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _add_dags(dags: Path) -> None:
    """Add the DAG files of the checkout, and a team's own DAG with a task group."""
    dags.mkdir()
    for file in (CHECKOUT / "dags").glob("*.py"):
        (dags / file.name).symlink_to(file)
    (dags / "weekly.py").write_text(_TEAM_DAG, encoding="utf-8")


def _environment(folder: Path, home: Home, definitions: Path, port: int) -> Mapping[str, str]:
    options: dict[str, object] = {
        "CORE__AUTH_MANAGER": FAB,
        "CORE__DAGS_FOLDER": folder / "dags",
        "CORE__PLUGINS_FOLDER": CHECKOUT / "plugins",
        "CORE__LOAD_EXAMPLES": False,
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}?timeout=60",
        "API__HOST": "127.0.0.1",
        "API__PORT": port,
        "API__BASE_URL": f"http://127.0.0.1:{port}",
        "API__WORKERS": 1,
        "API__SECRET_KEY": "a key of a test, long enough to be one",
        "API_AUTH__JWT_SECRET": "a secret of a test, long enough to be one",
        "USAGE_DATA_COLLECTION__ENABLED": False,
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    paths = os.pathsep.join([str(CHECKOUT / "pipelines"), str(CHECKOUT), inherited.get("PYTHONPATH", "")])
    return (
        inherited
        | {"AIRFLOW_HOME": str(folder), "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": ""}
        | {"BACKSTREAM_HOME": str(home.path), "BACKSTREAM_DEFINITIONS": str(definitions)}
        | {f"AIRFLOW__{name}": str(value) for name, value in options.items()}
    )


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < until:
        assert server.poll() is None, _end_of(log)
        try:
            if httpx.get(f"{url}/api/v2/version", timeout=5, trust_env=False).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.25)
    msg = f"the API server did not answer in {_START_LIMIT_S:.0f} s\n{_end_of(log)}"
    raise AssertionError(msg)


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-30:])
