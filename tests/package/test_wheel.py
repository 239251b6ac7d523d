"""The wheel, built from the sdist and installed into an environment of its own, outside of the checkout."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from demo.settings import CHECKOUT
from tests.package.installed import DAG_FILE, Installed, build_wheel, run_uv
from tests.workflow.history import at, write_clicks, write_definition

SITE_PACKAGES = sysconfig.get_path("purelib")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build and install the wheel without its dependencies, which come from the environment of the tests."""
    folder, project = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("project")
    environment = folder / "environment"
    wheel = build_wheel(folder)
    run_uv("venv", "--python", sys.executable, environment)
    run_uv("pip", "install", "--no-deps", "--python", environment / "bin" / "python", wheel)
    (own,) = environment.glob("lib/python*/site-packages")
    # Python ignores the files `*.pth` of this folder, and so the checkout that one of them names.
    (own / "dependencies.pth").write_text(SITE_PACKAGES)
    return Installed(environment, project)


@pytest.fixture(scope="module")
def airflow(installed: Installed) -> dict[str, Any]:
    """Return the DAGs and plugins that Airflow lists for one DAG file of five lines and no plugins folder."""
    dags = installed.project / "airflow" / "dags"
    (dags / "definitions").mkdir(parents=True)
    (dags / "backfills.py").write_text(DAG_FILE)
    write_definition(dags / "definitions")
    lines = installed.run("python", Path(__file__).with_name("ask_airflow.py")).splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def test_the_command_line_finds_the_suites_and_the_definition_of_the_package(installed: Installed) -> None:
    rows = json.loads(installed.run("backstream", "config", "--format", "json"))
    settings = {row["key"]: row["value"] for row in rows}
    bundled = next(installed.environment.glob("lib/python*/site-packages/backstream/bundled"))

    assert settings["definitions"] == str(bundled / "definitions")
    assert settings["expectations"] == str(bundled / "expectations")
    assert sorted(path.name for path in (bundled / "dags").glob("*.py")) == sorted(
        path.name for path in (CHECKOUT / "dags").glob("*.py")
    )


def test_the_command_line_plans_own_data_with_a_bundled_suite(installed: Installed) -> None:
    write_clicks(installed.project / "data" / "a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    write_definition(installed.project)

    printed = installed.run("backstream", "plan", "clicks.toml", "--since", "2024-03-01", "--until", "2024-03-02")

    assert printed.startswith("clicks  2024-03-01T00:00Z to 2024-03-02T00:00Z  recompute")
    assert (installed.project / ".backstream" / "runs" / "clicks").is_dir()


def test_airflow_lists_three_dags_per_definition(airflow: dict[str, Any]) -> None:
    names = [dag["dag_id"] for dag in airflow["dags"]]
    assert names == ["backfill_clicks", "reprocess_clicks", "restate_clicks"]


def test_airflow_loads_the_plugin_from_the_package(airflow: dict[str, Any]) -> None:
    (plugin,) = [plugin for plugin in airflow["plugins"] if plugin["name"] == "backstream"]
    assert plugin["source"].startswith("backstream==")
    assert [view["name"] for view in plugin["external_views"]] == ["Backfills", "Windows", "Watermark", "Report"]


LACKING = [
    (
        "fail  connection   no Airflow connection backstream_spark; "
        "airflow connections add backstream_spark --conn-type spark --conn-host 'local[*]'"
    ),
    (
        "fail  pool         no Airflow pool spark, so Spark jobs wait forever; "
        "airflow pools set spark 2 'Spark jobs at the same time'"
    ),
]


def test_doctor_names_what_airflow_lacks_with_the_commands_that_add_it(
    installed: Installed, airflow: dict[str, Any]
) -> None:
    assert airflow["dags"]

    lines = installed.run("backstream", "doctor", status=1).splitlines()

    assert [line for line in lines if not line.startswith("ok")] == LACKING
    assert [line.split()[1] for line in lines[:3]] == ["python", "java", "spark"]


def test_init_airflow_writes_the_dag_file_and_lists_what_is_missing(
    installed: Installed, airflow: dict[str, Any]
) -> None:
    assert airflow["dags"]

    lines = installed.run("backstream", "init", "airflow").splitlines()

    assert lines == [
        f"Wrote {installed.project}/backfills.py.",
        "",
        "missing:",
        (
            "  warn  settings     BACKSTREAM_HOME is not set; "
            "set it to the folder with the state of all runs for all processes of Airflow"
        ),
        (
            "  warn  settings     BACKSTREAM_DEFINITIONS is not set; "
            "set it to the folder of definitions for all processes of Airflow"
        ),
        *(f"  {line}" for line in LACKING),
    ]
