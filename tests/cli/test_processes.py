"""The command in a process of its own: what a shell sees, with a real Spark, without Java, with an old one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import FLINK_CASES
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.lake.reader import load_rows
from backstream.runs.home import Home
from backstream.spark.session import SMALL_DATA_SETTINGS
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE

FIRST_OF_MARCH = ["--since", "2024-03-01", "--until", "2024-03-02"]
CASES = str(FLINK_CASES / "idle.jsonl")
SPARK_PLAYS = ["conformance", CASES, "--engine", "spark"]


def backstream(folder: Path, *arguments: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """The installed command, with its state in the folder; a variable that is None is not set."""
    changed = {HOME_VARIABLE: str(folder / "home"), CATALOG_VARIABLE: None, **environment}
    kept = {name: value for name, value in os.environ.items() if name not in changed}
    return subprocess.run(
        [Path(sys.executable).with_name("backstream"), *arguments],
        env=kept | {name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
    )


def fake_java(folder: Path, body: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{body}\n")
    java.chmod(0o755)
    return java


def write_one_click(folder: Path) -> Path:
    write_clicks(folder / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    return write_definition(folder)


NO_JAVA = (
    "error: no Java runtime on PATH, and JAVA_HOME is not set; Spark needs version 17 or newer\n"
    "\n"
    "hint: install a Java 17 runtime, and set JAVA_HOME to its folder\n"
)


def test_a_run_on_spark_without_java_fails_with_an_error_and_a_hint(tmp_path: Path) -> None:
    command = ["run", str(write_one_click(tmp_path)), *FIRST_OF_MARCH, "--runner", "spark"]

    result = backstream(tmp_path, *command, PATH=str(tmp_path), JAVA_HOME=None)

    assert (result.returncode, result.stdout, result.stderr) == (1, "", NO_JAVA)


WITHOUT_SPARK = """
import sys
sys.modules |= dict.fromkeys(("pyspark", "py4j"))  # as if they were not installed
from backstream.cli import main
sys.exit(main())
"""


def without_spark(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command on a machine that has no Java and no PySpark."""
    hidden = ("JAVA_HOME", CATALOG_VARIABLE)
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    environment = kept | {HOME_VARIABLE: str(folder / "home"), "PATH": str(folder)}
    command = [sys.executable, "-c", WITHOUT_SPARK, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("mode", ["recompute", "replay"])
def test_a_run_without_java_and_pyspark_publishes(tmp_path: Path, mode: str) -> None:
    clicks = [(at(f"1 05:{minute:02}"), at(f"1 05:{minute:02}"), "A", minute, "home") for minute in range(60)]
    write_clicks(tmp_path / "data/a.parquet", clicks)
    definition = str(write_definition(tmp_path, CLICKS + LENIENT_ABOUT_GAPS))

    result = without_spark(tmp_path, "run", definition, *FIRST_OF_MARCH, "--mode", mode, "--allow-unsealed")
    shown = without_spark(tmp_path, "show", "clicks", "--format", "csv")

    assert result.returncode == 0, result.stderr
    assert "threads of this process" in result.stderr
    assert ",60," in shown.stdout, shown


def test_a_run_that_needs_spark_ends_at_once_with_the_local_runner(tmp_path: Path) -> None:
    write_one_click(tmp_path)
    definition = str(write_definition(tmp_path, CLICKS + '[derive_after]\ntwice = "clicks * 2"\n'))

    result = without_spark(tmp_path, "run", definition, *FIRST_OF_MARCH, "--runner", "local", "--allow-unsealed")

    assert result.returncode == 1
    assert 'error: the runner "local" has no Spark, which is needed: Spark computes' in result.stderr


@pytest.mark.parametrize("command", ["check", "plan", "run"])
def test_what_only_spark_can_do_is_refused_before_the_run(tmp_path: Path, command: str) -> None:
    write_one_click(tmp_path)
    local = '[derive_after]\ntwice = "clicks * 2"\n[backfill]\nrunner = "local"\n'
    definition = str(write_definition(tmp_path, CLICKS + local))

    result = without_spark(tmp_path, command, definition, *(FIRST_OF_MARCH if command != "check" else []))

    assert result.returncode == 1
    assert result.stderr.startswith(
        'error: the runner "local" has no Spark, which is needed: Spark computes [derive_after]'
    ), result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "home/runs").exists()


def test_conformance_without_java_runs_on_the_reference_engine_and_fails_on_spark(tmp_path: Path) -> None:
    reference = backstream(tmp_path, "conformance", CASES, PATH=str(tmp_path), JAVA_HOME=None)
    spark = backstream(tmp_path, *SPARK_PLAYS, PATH=str(tmp_path), JAVA_HOME=None)

    assert (reference.returncode, spark.returncode) == (0, 1)
    assert (spark.stdout, spark.stderr) == ("", NO_JAVA)


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    result = backstream(tmp_path, *SPARK_PLAYS, JAVA_HOME="/no/such/java")

    assert result.returncode == 1
    assert result.stderr == (
        "error: no Java runtime at JAVA_HOME=/no/such/java; Spark needs version 17 or newer\n"
        "\n"
        "hint: install a Java 17 runtime, and set JAVA_HOME to its folder\n"
    )


@pytest.mark.parametrize(
    ("body", "got"),
    [
        ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", 'openjdk version "11.0.2" 2019-01-15'),
        ("""echo 'java version "1.8.0_392"' >&2""", 'java version "1.8.0_392"'),
        ("exit 1", "no output"),
    ],
)
def test_the_error_for_an_old_java_has_its_version_and_path(tmp_path: Path, body: str, got: str) -> None:
    java = fake_java(tmp_path, body)

    result = backstream(tmp_path, *SPARK_PLAYS, PATH=str(java.parent), JAVA_HOME=None)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: Spark needs Java 17 or newer, got {got} ({java})\n"
        "\n"
        "hint: install a Java 17 runtime, and set JAVA_HOME to its folder\n"
    )


@pytest.fixture
def without_codegen(tmp_path: Path) -> str:
    """A folder of Spark's own settings: for a few rows, compiling costs more than running."""
    settings = {key: value for key, value in SMALL_DATA_SETTINGS.items() if key.startswith("spark.sql.codegen")}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return str(tmp_path)


LENIENT_ABOUT_GAPS = "\n[quality]\nmissing_ratio = { warn = 1, fail = 1 }\n"
#  arrival     05:01  06:50  07:00
#  happened    05:00  06:40  05:10       watermark at 07:00: 06:30, so the last one came an hour too late
TWO_AND_A_LATE_ONE = [
    (at("1 05:00"), at("1 05:01"), "A", 0, "home"),
    (at("1 06:40"), at("1 06:50"), "A", 1, "home"),
    (at("1 05:10"), at("1 07:00"), "A", 2, "home"),
]


def test_a_run_is_published_and_summed_up_on_standard_output(tmp_path: Path, without_codegen: str) -> None:
    write_clicks(tmp_path / "data/a.parquet", TWO_AND_A_LATE_ONE)
    command = ["run", str(write_definition(tmp_path, CLICKS + LENIENT_ABOUT_GAPS)), *FIRST_OF_MARCH]

    first = backstream(tmp_path, *command, SPARK_CONF_DIR=without_codegen)
    again = backstream(tmp_path, "report", *command[1:])

    assert (first.returncode, again.returncode) == (0, 0)
    (report,) = tmp_path.glob("home/runs/clicks/*/report.html")
    assert first.stdout == (
        f"clicks  2024-03-01T00:00Z to 2024-03-02T00:00Z  recompute  run {report.parent.name}\n"
        "\n"
        "partition      events       on_time\n"
        "A                   3 =           3\n"
        "all                 3 =           3\n"
        "\n"
        "verdict    pass: 22 of 24 windows have no event (A, 1 March 2024)\n"
        "published  2 rows to table clicks, replacing 0\n"
        f"report     {report}\n"
    )
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert "Traceback" not in first.stderr
    assert load_rows(Home(tmp_path / "home"), "clicks")["clicks"].to_pylist() == [2, 1]


def test_a_run_is_published_even_if_the_dataset_state_cannot_be_refreshed(
    tmp_path: Path, without_codegen: str
) -> None:
    write_clicks(tmp_path / "data/a.parquet", TWO_AND_A_LATE_ONE)
    definition = write_definition(tmp_path, CLICKS + LENIENT_ABOUT_GAPS)
    Home(tmp_path / "home").dataset_state("clicks").mkdir(parents=True)
    Home(tmp_path / "home").dataset_state("clicks").joinpath("in its way").touch()

    result = backstream(tmp_path, "run", str(definition), *FIRST_OF_MARCH, SPARK_CONF_DIR=without_codegen)

    assert result.returncode == 0
    assert "published  2 rows to table clicks, replacing 0\n" in result.stdout
    assert result.stderr[result.stderr.index("warning: ") :] == (
        "warning: the pages of clicks are not up to date: its state could not be refreshed\n"
        "  cannot write clicks.json: Is a directory\n"
    )


def test_a_run_that_the_gate_refuses_publishes_nothing_has_status_2_and_leaves_its_report(
    tmp_path: Path, without_codegen: str
) -> None:
    write_clicks(tmp_path / "data/a.parquet", TWO_AND_A_LATE_ONE)
    definition = write_definition(tmp_path, CLICKS + LENIENT_ABOUT_GAPS)

    command = ["run", str(definition), *FIRST_OF_MARCH, "--mode", "replay"]

    result = backstream(tmp_path, *command, SPARK_CONF_DIR=without_codegen)

    (report,) = tmp_path.glob("home/runs/clicks/*/report.html")
    assert (result.returncode, result.stdout) == (2, "")
    refused = result.stderr[result.stderr.index("error: ") :]
    assert refused == (
        "error: 22 of 24 windows have no event (A, 1 March 2024); "
        "0 % of 3 events were late, 33.3 % were dropped (delay 10m): nothing was published\n"
        "\n"
        f"hint: the report is at {report}\n"
    )
    assert load_rows(Home(tmp_path / "home"), "clicks").num_rows == 0
    assert not (report.parent / "publication.json").exists()
    assert "nothing was published" in report.read_text().lower()
