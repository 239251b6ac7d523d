from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from demo.processes import Service, StackError, end, locked, owned, remember
from demo.settings import Place, Secrets, Spark, environment, free_ports

SLEEP = "import time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_service_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    code = "import sys; print(*range(100), sep='\\n'); sys.exit('no such table')"
    service = Service.started("scheduler", python(code), tmp_path, os.environ)
    with pytest.raises(StackError) as caught:
        service.require_success(30)
    first, where, *tail = str(caught.value).splitlines()
    assert first == "airflow scheduler ended with status 1"
    assert where == f"  the end of {tmp_path / 'scheduler.log'}:"
    assert len(tail) == 15
    assert tail[-1] == "  | no such table"


def test_a_state_folder_has_one_stack_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path / "stack.lock"):
        with pytest.raises(StackError) as caught:
            locked(tmp_path / "stack.lock")
        assert str(caught.value) == (
            f"another Airflow uses the state folder {tmp_path}: process {os.getpid()}\n\n"
            "hint: stop it, or set BACKSTREAM_HOME to another folder"
        )
    locked(tmp_path / "stack.lock").close()


def test_everything_a_service_started_ends_with_it_also_what_is_deaf_or_an_orphan(tmp_path: Path) -> None:
    roster = tmp_path / "processes.txt"
    code = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DEAF!r}]); print('ready', flush=True)"
    )
    service = Service.started("scheduler", python(code), tmp_path, os.environ)
    remember(service, roster)
    service.require_success(30)  # it leaves an orphan in its session
    assert len(owned(tmp_path, roster)) == 1
    end(lambda: owned(tmp_path, roster), grace_s=1.0)
    assert owned(tmp_path, roster) == []


def test_what_has_left_its_session_is_known_by_its_environment(tmp_path: Path) -> None:
    env = os.environ | {"BACKSTREAM_STACK": str(tmp_path)}
    with subprocess.Popen(python(SLEEP), env=env, start_new_session=True) as stray:
        assert [process.pid for process in owned(tmp_path, tmp_path / "none.txt")] == [stray.pid]
        end(lambda: owned(tmp_path, tmp_path / "none.txt"))
    assert stray.returncode == -signal.SIGTERM


def test_a_number_that_has_passed_to_another_process_is_not_ours_to_end(tmp_path: Path) -> None:
    roster = tmp_path / "processes.txt"
    with subprocess.Popen(python(SLEEP), start_new_session=True) as stranger:
        roster.write_text(f"{stranger.pid} 1234.5\n")
        assert owned(tmp_path, roster) == []
        stranger.kill()


def test_the_ports_are_free_and_differ() -> None:
    assert len(set(free_ports(3))) == 3


def test_nothing_of_the_users_own_airflow_reaches_the_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW__CORE__HIDE_SENSITIVE_VAR_CONN_FIELDS", "False")
    place = Place(tmp_path, 1, 2, 3)
    env = environment(place, Secrets("pass", "jwt", "key"), Spark("local[1]", 2))
    assert env["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert "AIRFLOW__CORE__HIDE_SENSITIVE_VAR_CONN_FIELDS" not in env
    assert env["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert env["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:1/execution/"


def test_secrets_are_made_once_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    first = Secrets.kept_in(tmp_path)
    assert Secrets.kept_in(tmp_path) == first
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"secrets.json": 0o600, "passwords.json": 0o600}
