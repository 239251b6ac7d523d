"""A run of a small input starts Java only if Spark computes something."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.prepared.events import make_events
from tests.sources.definitions import PLAIN, write_orders
from tests.sources.tables import delete_positions, on_disk
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.spark.java import find_java

BROKEN_JAVA = """#!/bin/sh
case "$*" in *-version*) exec {java} "$@" ;; esac
echo started >> {log}
exit 1
"""
NEEDS_SPARK = CLICKS.replace("[aggregates]\n", '[aggregates]\nlast_page = "max_by(page, seq)"\n')


RUN = ("run", "--since", "2024-03-01", "--until", "2024-03-02", "--runner", "spark")


def run_with_broken_java(folder: Path, definition: Path, command: Sequence[str] = RUN) -> tuple[str, bool]:
    """Return the errors of a command on Spark, and whether it started Java, which fails."""
    java, log = folder / "jdk/bin/java", folder / "log"
    java.parent.mkdir(parents=True)
    java.write_text(BROKEN_JAVA.format(java=find_java(), log=log))
    java.chmod(0o755)
    command = (command[0], str(definition), *command[1:])
    ended = subprocess.run(
        [sys.executable, "-c", "from backstream.cli import main; main()", *command],
        env={**os.environ, "JAVA_HOME": str(java.parents[1]), "BACKSTREAM_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stderr, log.exists()


@pytest.mark.parametrize(("content", "needs_spark"), [(CLICKS, False), (NEEDS_SPARK, True)])
def test_java_starts_only_if_spark_computes_something(content: str, needs_spark: bool, tmp_path: Path) -> None:
    rows = [(at(f"1 05:{minute:02}"), at(f"1 05:{minute:02}"), "A", minute, "home") for minute in range(60)]
    write_clicks(tmp_path / "data/a.parquet", rows)

    errors, is_started = run_with_broken_java(tmp_path, write_definition(tmp_path, content))

    assert is_started == needs_spark, errors
    assert ("native tasks run in 2 threads of this process" in errors) != needs_spark


@pytest.mark.parametrize("command", [("prepare",), RUN])
def test_a_small_table_with_deleted_rows_is_copied_without_java(
    command: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = on_disk(tmp_path / "archive")
    archive.configure(monkeypatch.setenv)
    archive.append(make_events()[:80])
    with archive.table() as table:
        [task] = table.scan().plan_files()
    delete_positions(archive, task.file.file_path, [0, 5])
    source = 'format = "iceberg"\npath = "archive.sales.orders"\nkey = ["user"]\n'

    errors, is_started = run_with_broken_java(tmp_path, write_orders(tmp_path, source + PLAIN), command)

    assert not is_started, errors
    assert "copying 1 new file of orders" in errors
    [copied] = (tmp_path / "home").rglob("*.parquet") if command == ("prepare",) else (None,)
    assert copied is None or pq.read_metadata(copied).num_rows == 78
