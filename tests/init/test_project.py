"""The files of a new project, and the DAG file alone."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workflow.history import write_definition
from typer.testing import CliRunner, Result

from backstream.cli import app
from backstream.quality.suites import load_suite
from backstream.runs.settings import SETTINGS
from backstream.variables import DEFINITIONS_VARIABLE, HOME_VARIABLE
from backstream.workflow.new_project import list_missing_settings, write_dag_file

WRITTEN = {
    *("backstream.toml", ".env", ".gitignore", "README.md", "definitions/.gitkeep"),
    *("expectations/own_checks.json", "dags/backfills.py"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, and no settings in the environment."""
    before = dict(os.environ)
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


def backstream(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1"}).invoke(app, [*arguments])


def test_a_new_project_has_settings_a_suite_and_a_dag_file(folder: Path) -> None:
    ended = backstream("init")

    assert ended.exit_code == 0
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == WRITTEN
    assert {line.removeprefix("Wrote ").removesuffix(".") for line in ended.stdout.splitlines()[:7]} == WRITTEN
    assert len(load_suite("own_checks", folder / "expectations").entries) == 57


def test_commands_in_a_project_find_its_definitions_and_use_its_home(folder: Path) -> None:
    assert backstream("init").exit_code == 0
    write_definition(folder / "definitions")

    found = backstream("config").stdout

    assert f"home{' ' * 18}{folder}/.backstream\n{' ' * 22}from default of {folder}\n" in found
    assert backstream("check", "clicks").stdout.startswith("definition  clicks, tumbling windows of 1h\n")


def test_a_project_never_replaces_a_file(folder: Path) -> None:
    (folder / "README.md").write_text("mine")
    ended = backstream("init")
    assert ended.exit_code == 1
    assert ended.stderr == (
        f"error: {folder}/README.md exists already\n\nhint: choose another folder, or remove the file\n"
    )
    assert [path.name for path in folder.iterdir()] == ["README.md"]


def test_the_dag_file_of_a_project_names_its_definitions(folder: Path) -> None:
    (folder / "backstream.toml").touch()
    file = write_dag_file(folder)
    assert file == folder / "dags" / "backfills.py"
    assert file.read_text() == (
        '"""The DAGs of each definition of this project."""\n\n'
        "from pathlib import Path\n\n"
        "from backstream.airflow import backfill_dags\n\n"
        'globals().update(backfill_dags(Path(__file__).parents[1] / "definitions"))\n'
    )


def test_the_dag_file_outside_of_a_project_uses_the_folders_of_the_settings(folder: Path) -> None:
    file = write_dag_file(folder)
    assert file == folder / "backfills.py"
    assert ast.unparse(ast.parse(file.read_text()).body[-1]) == "globals().update(backfill_dags())"


def test_settings_that_airflow_lacks_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, "/srv")
    assert [str(finding) for finding in list_missing_settings()] == [
        (
            f"warn  settings     {DEFINITIONS_VARIABLE} is not set; "
            "set it to the folder of definitions for all processes of Airflow"
        )
    ]


@pytest.mark.parametrize(("arguments", "missing"), [(["orders"], "--from"), (["--from", "data"], "NAME")])
def test_a_definition_needs_its_name_and_its_events(arguments: list[str], missing: str) -> None:
    ended = backstream("init", *arguments)
    assert (ended.exit_code, ended.stderr) == (
        1,
        (
            f"error: a definition needs NAME and --from, got no {missing}\n\n"
            "hint: backstream init orders --from data/orders\n"
        ),
    )
