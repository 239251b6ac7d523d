"""The version, the settings and their sources, and misspelt variables on the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backstream.cli import app
from backstream.runs.settings import SETTINGS

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory: a project with a warehouse in S3, and no settings in the environment."""
    before = dict(os.environ)
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "backstream.toml").write_text('warehouse = "s3://ID:KEY@lake/events"\n')
    (tmp_path / ".env").write_text("BACKSTREAM_DRIVER_MEMORY=2g\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


def test_the_version_is_that_of_the_package() -> None:
    ended = RUNNER.invoke(app, ["--version"])
    assert (ended.exit_code, ended.stdout) == (0, f"backstream {version('backstream')}\n")


def test_config_prints_every_value_and_its_source(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTREAM_CATALOG_URI", "postgresql+psycopg2://me:secret@host/lake")

    ended = RUNNER.invoke(app, ["config", "--format", "json"])
    found = {row["key"]: (row["value"], row["source"]) for row in json.loads(ended.stdout)}

    assert found.keys() == {name.removeprefix("BACKSTREAM_").lower() for name in SETTINGS}
    assert found["catalog_uri"] == ("postgresql+psycopg2://me:***@host/lake", "environment")
    assert found["driver_memory"] == ("2g", f"{project}/.env")
    assert found["warehouse"] == ("s3://ID:***@lake/events", f"{project}/backstream.toml")
    assert found["home"] == (f"{project}/.backstream", f"default of {project}")
    assert found["class_archive"][1] == "default"

    lines = RUNNER.invoke(app, ["config"]).stdout.splitlines()
    assert lines[0] == f"home{' ' * 18}{project}/.backstream"
    assert "secret" not in "".join(lines)


def test_a_misspelt_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTREAM_WAREHOSUE", "/srv")
    ended = RUNNER.invoke(app, ["config"])
    assert ended.exit_code == 0
    warning = "BACKSTREAM_WAREHOSUE is not a setting and has no effect; did you mean BACKSTREAM_WAREHOUSE?"
    assert f"warning: {warning}\n" in ended.stderr


def test_a_mistake_in_the_project_file_is_an_error_of_every_command(project: Path) -> None:
    (project / "backstream.toml").write_text("homes = 1\n")
    ended = RUNNER.invoke(app, ["status"])
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"error: homes is not a setting, got 1 ({project}/backstream.toml)\n")
