"""A call of Java in a definition that ends the Java of Spark ends a command with one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backstream.errors import NO_RETRY_STATUS
from backstream.spark.java_end import list_java_calls
from backstream.workflow.java_end import explain_java_end

DEFINITION = """
name = "ends"
[source]
path = "{folder}/in"
format = "json"
event_time = "at"
columns = {{ at = "timestamp", n = "int" }}
{setting}
[window]
kind = "tumbling"
size = "1h"
[aggregates]
highest = "max(n)"
"""
EXIT = "java_method('java.lang.System', 'exit', n)"
RANGE = ("--since", "2024-03-01", "--until", "2024-03-02")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "setting"),
    [("source.where", f'where = "{EXIT} is null"'), ("source.derive.d", f'derive = {{ d = "{EXIT}" }}')],
)
@pytest.mark.parametrize(
    "command",
    [
        ("run", *RANGE),
        *(
            pytest.param(command, marks=pytest.mark.long)
            for command in (("preview", *RANGE), ("check", "--sample", "5"))
        ),
    ],
)
def test_the_end_of_java_is_one_sentence(tmp_path: Path, key: str, setting: str, command: tuple[str, ...]) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"at": f"2024-03-01T0{n}:00:00Z", "n": n} for n in range(1, 4)]
    (tmp_path / "in/a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    definition = tmp_path / "ends.toml"
    definition.write_text(DEFINITION.format(folder=tmp_path, setting=setting))
    name, *options = command

    # Java ends with the process that started it, so the command needs a process of its own.
    ended = subprocess.run(
        [sys.executable, "-m", "backstream.cli", name, str(definition), *options],
        env={**os.environ, "BACKSTREAM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    message = ended.stderr.partition("error: ")[2]
    assert message.startswith("the Java of Spark ended with status ")
    assert f"{key} calls java_method ({definition})" in message
    assert len(message.splitlines()) == 3


def test_calls_of_java_are_found_by_their_key() -> None:
    content = {
        "source": {"where": "try_reflect ('a', 'b')", "sources": [{"derive": {"d": "1 + REFLECT('a', 'b')"}}]},
        "aggregates": {"reflect": "max(reflect)", "v": "max(my_reflect(n))"},
    }

    assert dict(list_java_calls(content)) == {
        "source.where": "try_reflect",
        "source.sources[0].derive.d": "REFLECT",
    }


@pytest.mark.slow
def test_a_job_of_airflow_says_that_java_ended(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"at": "2024-03-01T01:00:00Z", "n": 1}\n')
    definition = tmp_path / "ends.toml"
    definition.write_text(DEFINITION.format(folder=tmp_path, setting=f'where = "{EXIT} is null"'))

    ended = subprocess.run(
        [sys.executable, "-m", "backstream.jobs.prepare", "--definition", str(definition)],
        env={**os.environ, "BACKSTREAM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == NO_RETRY_STATUS
    message = ended.stderr.partition("SpecError: ")[2]
    assert message.startswith("the Java of Spark ended with status 1: source.where calls java_method")
    assert "Traceback" not in ended.stderr


def test_errors_do_not_wait_while_java_runs(spark: SparkSession) -> None:
    assert spark.range(1).count() == 1  # Java runs
    started_s = time.monotonic()

    with pytest.raises(KeyError), explain_java_end(lambda: ({}, "a.toml")):
        raise KeyError

    assert time.monotonic() - started_s < 0.5  # seconds
