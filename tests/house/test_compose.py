"""No engine runs here: everything in the compose file is held against the environment and the lock."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.house.compose import (
    COMPOSE,
    IMAGE_FOLDER,
    OURS,
    REPOSITORY,
    SERVICES,
    commands,
    copied,
    environment,
    image_environment,
    instructions,
    option,
    variables,
)

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SETUP = (REPOSITORY / "bin" / "setup").read_text(encoding="utf-8")
COMMANDS = Path(sys.executable).parent
AIRFLOW_SERVICES = ["init", "api-server", "scheduler", "dag-processor", "triggerer"]


def ask_airflow(home: Path, questions: dict[str, Any]) -> dict[str, Any]:
    """Put questions to the locked Airflow, in an interpreter of its own with the scheduler's environment."""
    asked = subprocess.run(
        [sys.executable, Path(__file__).with_name("ask_airflow.py")],
        input=json.dumps(questions),
        env={**os.environ, **environment("scheduler"), "AIRFLOW_HOME": str(home)},
        check=False,
        capture_output=True,
        text=True,
    )
    said = [line for line in asked.stdout.splitlines() if line.startswith("answers: ")]
    assert len(said) == 1, asked.stderr
    answers: dict[str, Any] = json.loads(said[0].removeprefix("answers: "))
    return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Airflow says to all commands and settings of the compose file, and to two that are wrong."""
    said = [words[1:] for name in AIRFLOW_SERVICES for words in commands(name) if words[0] == "airflow"]
    names = {name for service in AIRFLOW_SERVICES for name in environment(service)}
    settings = [name.lower().split("__")[1:] for name in sorted(names) if name.startswith("AIRFLOW__")]
    questions = {
        "commands": [*said, ["scheduler", "--fast"]],
        "settings": [*settings, ["core", "colour"], ["colours", "core"]],
    }
    return ask_airflow(tmp_path_factory.mktemp("airflow"), questions)


# --- Airflow -----------------------------------------------------------------------------------------------


def test_airflow_accepts_every_command_with_its_options(answers: dict[str, Any]) -> None:
    assert answers["refused"] == {
        "scheduler --fast": "airflow command error: unrecognized arguments: --fast, see help above."
    }


def test_airflow_has_every_setting_of_the_compose_file(answers: dict[str, Any]) -> None:
    assert answers["unknown_settings"] == ["core.colour", "colours.core"]


def test_every_service_of_airflow_is_there_once() -> None:
    started = {name: commands(name)[0][:2] for name in AIRFLOW_SERVICES[1:]}
    assert started == {name: ["airflow", name] for name in AIRFLOW_SERVICES[1:]}


def test_the_connection_and_the_pool_are_those_that_the_dags_use(answers: dict[str, Any]) -> None:
    assert answers["spark_master"] == "spark://spark-master:7077"
    assert f"AIRFLOW_CONN_{answers['connection'].upper()}" in environment("scheduler")
    pools = [words[3] for words in commands("init") if words[:3] == ["airflow", "pools", "set"]]
    assert pools == [answers["pool"]]


def test_the_tasks_reach_the_api_server_where_it_listens() -> None:
    url = environment("scheduler")["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"]
    assert url == f"http://api-server:{option('api-server', '--port')}/execution/"
    assert environment("api-server")["AIRFLOW__API__BASE_URL"] == "http://localhost:8080"
    assert SERVICES["api-server"]["ports"] == ["127.0.0.1:${PORT:-8080}:8080"]


def test_both_databases_are_made_by_postgres() -> None:
    told = environment("scheduler")
    uris = [told["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"], told["BACKSTREAM_CATALOG_URI"]]
    assert uris == [f"postgresql+psycopg2://backstream:x@postgres:5432/{name}" for name in ("airflow", "lake")]
    assert environment("postgres") == {
        "POSTGRES_USER": "backstream",
        "POSTGRES_PASSWORD": "x",
        "POSTGRES_DB": "airflow",
    }
    assert COMPOSE["configs"]["create-lake"]["content"] == "CREATE DATABASE lake;"
    assert SERVICES["postgres"]["configs"] == [
        {"source": "create-lake", "target": "/docker-entrypoint-initdb.d/create-lake.sql"}
    ]


# --- Spark -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["spark-master", "spark-worker-1"])
def test_spark_has_the_class_and_the_options_of_each_service(service: str) -> None:
    (name, main_class, *words), _ = commands(service)
    usage = subprocess.run(
        [COMMANDS / name, main_class, "--help"],
        env={**os.environ, "PATH": f"{COMMANDS}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        text=True,
    )
    known = set(re.findall(r"--[\w-]+", usage.stdout + usage.stderr))
    assert {word for word in words if word.startswith("--")} <= known
    assert "--colour" not in known


def test_two_workers_join_the_master_where_it_listens() -> None:
    master = f"spark://{option('spark-master', '--host')}:{option('spark-master', '--port')}"
    joined = {name: service["command"][-1] for name, service in SERVICES.items() if "spark-worker" in name}
    assert joined == {"spark-worker-1": master, "spark-worker-2": master}
    assert option("spark-master", "--host") in SERVICES
    assert SERVICES["spark-worker-2"] == SERVICES["spark-worker-1"]


@pytest.mark.parametrize("service", ["api-server", "spark-master", "spark-worker-1", "spark-worker-2"])
def test_a_health_check_requests_the_port_of_its_service(service: str) -> None:
    *_, (python, flag, code) = commands(service)
    compile(code, "health check", "exec")
    port = option(service, "--port" if service == "api-server" else "--webui-port")
    assert (python, flag) == ("python", "-c")
    assert re.findall(r"http://localhost:(\d+)", code) == [port]


@pytest.mark.parametrize(
    ("service", "job_type"),
    [("scheduler", "SchedulerJob"), ("dag-processor", "DagProcessorJob"), ("triggerer", "TriggererJob")],
)
def test_a_health_check_of_airflow_looks_for_the_job_of_its_own_service(service: str, job_type: str) -> None:
    assert commands(service)[-1] == ["airflow", "jobs", "check", "--job-type", job_type, "--local"]


# --- the image ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", sorted(OURS))
def test_every_command_is_in_the_environment(service: str) -> None:
    assert SERVICES[service]["image"] == "backstream"
    missing = [words[0] for words in commands(service) if not (COMMANDS / words[0]).exists()]
    assert missing == []


def test_the_image_puts_its_environment_first_on_the_path() -> None:
    assert image_environment()["PATH"] == f"{IMAGE_FOLDER}/.venv/bin:$PATH"
    assert {*instructions("WORKDIR")} == {IMAGE_FOLDER}
    assert f"--from=build {IMAGE_FOLDER}/.venv .venv" in instructions("COPY")


def test_everything_that_the_image_copies_exists_and_is_not_ignored() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"
    assert [name for name in copied() if not (REPOSITORY / name).exists()] == []
    assert sorted(copied()) == sorted(line[1:] for line in ignored if line.startswith("!"))
    places = {each.split()[-1] for each in instructions("COPY")}
    assert places == {"./", ".venv", "pipelines", "dags", "plugins", "expectations"}  # so nothing moves


def test_every_folder_named_in_the_settings_is_one_that_the_image_copied() -> None:
    named = {
        value.removeprefix(f"{IMAGE_FOLDER}/")
        for service in OURS
        for value in environment(service).values()
        if value.startswith(IMAGE_FOLDER)
    }
    assert named == {"dags", "plugins"}
    assert named <= set(copied())


def test_every_volume_covers_a_folder_that_the_image_gives_to_its_user() -> None:
    mounted = {place for service in OURS.values() for place in service.get("volumes", [])}
    assert mounted == {"home:/var/lib/backstream", "logs:/opt/airflow/logs"}
    owned = next(run for run in instructions("RUN") if "install -d -o backstream" in run).split()
    written = [*(place.split(":")[1] for place in mounted), image_environment()["SPARK_WORKER_DIR"]]
    assert [place for place in written if place not in owned] == []
    assert instructions("USER") == ["backstream"]
    assert image_environment()["BACKSTREAM_HOME"] == "/var/lib/backstream"
    assert image_environment()["AIRFLOW_HOME"] == "/opt/airflow"


def test_all_services_that_write_the_lake_mount_the_same_folder() -> None:
    sees = {name for name, told in OURS.items() if "home:/var/lib/backstream" in told.get("volumes", [])}
    assert sees == {*AIRFLOW_SERVICES, "spark-worker-1", "spark-worker-2"}


def test_the_image_is_built_from_the_lock_with_the_extras_that_exist() -> None:
    synced = [run.partition("&&")[0].strip() for run in instructions("RUN") if run.startswith("uv sync")]
    assert synced == [
        "uv sync --locked --no-install-project --extra airflow --extra spark --extra postgres",
        "uv sync --locked --extra airflow --extra spark --extra postgres",
    ]
    assert {"airflow", "spark", "postgres"} <= PROJECT["optional-dependencies"].keys()


def test_one_service_builds_the_image_and_no_other_looks_for_it_elsewhere() -> None:
    assert {name: told["pull_policy"] for name, told in OURS.items() if name != "init"} == dict.fromkeys(
        OURS.keys() - {"init"}, "never"
    )
    assert (SERVICES["init"]["build"], SERVICES["init"]["pull_policy"]) == (".", "build")


# --- versions and names ------------------------------------------------------------------------------------


def test_the_versions_are_those_that_the_project_names_elsewhere() -> None:
    (base,) = {each.split()[0] for each in instructions("FROM")}
    python = re.fullmatch(r"python:3\.(\d+)-slim-bookworm", base)
    bounds = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"])
    java = re.search(r"openjdk-(\d+)-jre-headless", " ".join(instructions("RUN")))
    assert python is not None
    assert bounds is not None
    assert java is not None
    assert int(bounds[1]) <= int(python[1]) < int(bounds[2])
    assert java[1] == "17"  # the one that bookworm carries
    assert f"lowest_java={java[1]}\n" in SETUP
    assert "uv_requirement='uv>=0.9,<1'\n" in SETUP
    assert 'pip install --no-cache-dir "uv>=0.9,<1"' in instructions("RUN")
    assert SERVICES["postgres"]["image"] == "postgres:15"  # the one that all of this was run on


def test_every_variable_of_ours_is_one_that_the_code_reads() -> None:
    named = {name for service in OURS for name in environment(service)} | image_environment().keys()
    ours = {name for name in named if name.startswith("BACKSTREAM_")}
    code = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "pipelines").rglob("*.py"))
    assert {name for name in ours if f'"{name}"' not in code} == set()
    assert ours == {"BACKSTREAM_HOME", "BACKSTREAM_CATALOG_URI"}


def test_the_example_env_file_has_every_variable_of_the_compose_file() -> None:
    example = (REPOSITORY / ".env.example").read_text(encoding="utf-8")
    assert set(re.findall(r"^(\w+)=", example, flags=re.MULTILINE)) == variables()


def test_nothing_waits_for_what_cannot_happen() -> None:
    waits = [
        (name, other, how["condition"])
        for name, told in SERVICES.items()
        for other, how in told.get("depends_on", {}).items()
    ]
    healthy = [other for _, other, condition in waits if condition == "service_healthy"]
    assert [other for other in healthy if "healthcheck" not in SERVICES[other]] == []
    # `docker compose up --wait` takes a service for failed when it ends, unless another waits for that end.
    ended = {other for _, other, condition in waits if condition == "service_completed_successfully"}
    assert ended == {name for name, told in SERVICES.items() if told.get("restart") == "no"} == {"init"}
    assert {name for name, told in SERVICES.items() if "healthcheck" not in told} == {"init"}
