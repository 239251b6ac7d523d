"""`init` writes a definition for each usual form of time, and a run reads all records by it."""

from __future__ import annotations

import tomllib
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.init.time_forms import FORMS, INSTANTS, truncated, write_form
from typer.testing import CliRunner

from backstream.chunks.preparation.settings import Preparation
from backstream.cli import app
from backstream.definition.loader import load_definition
from backstream.definition.prepared_columns import EVENT_TIME
from backstream.spark.preparation.prepared_columns import add_derived_columns, select_prepared_columns
from backstream.spark.preparation.raw_records import load_raw_records

TIME_KEYS = ("event_time", "event_time_unit", "event_time_pattern")


def init(folder: Path, *arguments: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1"}).invoke(app, ["init", *arguments])


def event_times(spark: SparkSession, definition: Path, files: Path) -> DataFrame:
    """Return the event times that a run reads, in epoch milliseconds; null for a rejected record."""
    preparation = Preparation(load_definition(definition), str(definition))
    rows = load_raw_records(spark, preparation, [str(path) for path in files.iterdir()], None)
    prepared = select_prepared_columns(add_derived_columns(rows, preparation), preparation)
    return prepared.select(F.lit(files.name).alias("form"), F.unix_millis(EVENT_TIME).alias("at_ms"))


def test_a_run_reads_all_records_of_each_form(tmp_path: Path, spark: SparkSession) -> None:
    keys, frames = {}, []
    for number, (name, form) in enumerate(FORMS.items()):
        write_form(form, tmp_path / name)
        definition = tmp_path / f"{number}.toml"

        ended = init(tmp_path, "t", "--from", name, "--yes", "--to", definition.name)

        assert ended.exit_code == 0, (name, ended.output)
        source = tomllib.loads(definition.read_text())["source"]
        keys[name] = {key: source[key] for key in TIME_KEYS if key in source}
        frames.append(event_times(spark, definition, tmp_path / name))
    read: dict[str, list[int | None]] = {name: [] for name in FORMS}
    for row in reduce(DataFrame.union, frames).collect():
        read[row.form].append(row.at_ms)

    assert keys == {name: form.keys for name, form in FORMS.items()}
    assert {name: sorted(times, key=str) for name, times in read.items()} == {
        name: sorted((round(truncated(at, form.precision).timestamp() * 1000) for at in INSTANTS), key=str)
        for name, form in FORMS.items()
    }
