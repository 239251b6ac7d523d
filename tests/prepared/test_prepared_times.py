"""Spark parses the text of a time once per record, although conditions use the instant, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.prepared.events import make_events
from tests.prepared.test_prepared import SOURCES, write_definition
from tests.spark.runs import physical_plan

from backstream.chunks.preparation.settings import Preparation
from backstream.definition.loader import load_definition
from backstream.spark.preparation.prepared_columns import select_prepared_columns
from backstream.spark.preparation.raw_records import load_raw_records


@pytest.mark.parametrize(("kind", "call"), [("json", ".at as timestamp)"), ("csv", "gettimestamp(trim(at#")])
def test_a_text_is_parsed_once_per_record(kind: str, call: str, spark: SparkSession, tmp_path: Path) -> None:
    write, name, source = SOURCES[kind]
    write(tmp_path / "data", name, make_events(5))
    path = write_definition(tmp_path, source, "payload.amount" if kind == "json" else "amount")
    preparation = Preparation(load_definition(path), str(path))
    rows = load_raw_records(spark, preparation, [str(tmp_path / "data" / name)], None)

    plan = physical_plan(select_prepared_columns(rows, preparation))

    assert plan.count(call) == 1
