from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.quality.test_suites import ENTRY, suite_of
from typer.testing import CliRunner, Result

from backstream.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "quality.md"


def check(*suites: str | Path) -> Result:
    environment = {"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner(env=environment).invoke(app, ["quality", "check", *map(str, suites)])


def test_the_suites_of_the_checkout_are_sound() -> None:
    result = check()

    assert (result.exit_code, result.stderr) == (0, "")
    _, _, shown = PAGE.read_text(encoding="utf-8").partition("$ backstream quality check\n")
    assert result.stdout == shown.partition("```")[0]


def test_every_suite_is_looked_at_and_each_finding_names_file_expectation_key_and_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTREAM_EXPECTATIONS", str(tmp_path))
    suite_of(tmp_path, ENTRY | {"severity": "urgent"})
    (tmp_path / "yours.json").write_text(json.dumps({"name": "yours", "expectations": [ENTRY]}))

    result = check()

    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "yours: 1 expectation"
    assert result.stderr == (
        "error: expectation 1 (expect_column_values_to_be_between): "
        f"severity must be critical, warning or info, got 'urgent' ({tmp_path}/mine.json)\n"
    )


def test_a_file_outside_of_the_suites_folder_can_be_checked(tmp_path: Path) -> None:
    suite_of(tmp_path, ENTRY)

    assert check(tmp_path / "mine.json").stdout == "mine: 1 expectation\n"


def test_a_custom_suite_replaces_the_bundled_one_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTREAM_EXPECTATIONS", f"{tmp_path}/none:{tmp_path}")
    (tmp_path / "windows.json").write_text(json.dumps({"name": "windows", "expectations": [ENTRY]}))

    lines = check().stdout.splitlines()

    assert "windows: 1 expectation" in lines
    assert "volume: 1 expectation" in lines


def test_help_names_the_argument_and_shows_an_example() -> None:
    result = check("--help")

    assert "[SUITE]..." in result.stdout
    assert "Example: backstream quality check window_audit" in result.stdout
