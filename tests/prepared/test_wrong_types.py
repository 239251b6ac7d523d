"""A value that its declared type cannot hold has the same fate in each engine and in `check`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.prepared.test_prepared import quarantined

import backstream
from backstream.runs.home import Home
from backstream.workflow.checks.check_sample import check_sample

DEFINITION = """
name = "orders"
[source]
path = "{folder}/in"
format = "{form}"
event_time = "meta_at"
arrival_time = "arrived"
key = []
columns = {{ {columns} }}
[window]
kind = "tumbling"
size = "1d"
[aggregates]
v_s = "sum(s)"
v_i = "sum(i)"
v_l = "max(l)"
last = "max(other)"
[quality]
quarantined_ratio = {{ warn = 1, fail = 1 }}
[backfill]
engine = "{engine}"
"""
BITS = {"s": ("smallint", 15), "i": ("int", 31), "l": ("bigint", 63)}
TIMES = ("meta_at", "arrived", "other")
TIME = "2024-03-01T08:00:00Z"
NO_TIMES = ("2024", "08:00", "soon", "2024-02-30T08:00:00Z")


def _records() -> Iterator[dict[str, Any]]:
    good = dict.fromkeys(BITS, 1) | dict.fromkeys(TIMES, TIME)
    yield from [good, good]
    for name, (_, bits) in BITS.items():
        for value in (2**bits - 1, 2**bits, -(2**bits), -(2**bits) - 1, 1.5, 1.0, 1e3, 10**30, None):
            yield {**good, name: value}
    for name in TIMES:
        yield from ({**good, name: text} for text in (*NO_TIMES, None))
    yield {**good, "meta_at": "x", "arrived": "y"}
    yield {**good, "meta_at": "x", "l": 2**63}


def _reason(record: dict[str, Any]) -> str | None:
    """Return the reason against a record, by Python's own types."""
    values = [(record[name], 2**bits) for name, (_, bits) in BITS.items() if record[name] is not None]
    is_no_integer = any(not isinstance(value, int) or not -limit <= value < limit for value, limit in values)
    if is_no_integer or _is_no_time(record["other"]):
        return "malformed_record"
    for name, column in (("event_time", "meta_at"), ("arrival_time", "arrived")):
        if record[column] is None:
            return f"null_{name}"
        if _is_no_time(record[column]):
            return f"unparsable_{name}"
    return None


def _is_no_time(text: str | None) -> bool:
    return text is not None and text != TIME


def _write(folder: Path, form: str, engine: str) -> Path:
    (folder / "in").mkdir()
    records = list(_records())
    texts = [json.dumps(record) for record in records]
    if form == "csv":
        texts = [",".join("" if each is None else str(each) for each in record.values()) for record in records]
    (folder / f"in/a.{form}").write_text("".join(f"{text}\n" for text in texts))
    types = {name: kind for name, (kind, _) in BITS.items()} | dict.fromkeys(TIMES, "timestamp")
    columns = ", ".join(f'{name} = "{kind}"' for name, kind in types.items())
    path = folder / "orders.toml"
    path.write_text(DEFINITION.format(folder=folder, form=form, columns=columns, engine=engine))
    return path


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_a_value_of_another_type_has_one_fate(spark: SparkSession, tmp_path: Path, form: str, engine: str) -> None:
    path, home = _write(tmp_path, form, engine), Home(tmp_path / "home")
    reasons = Counter(filter(None, map(_reason, _records())))

    sample = check_sample(spark, path, 1_000, home)
    result = backstream.run(path, "2024-03-01", "2024-03-02", home=home.path, allow_unsealed=True)

    assert Counter(sample.quarantined["quarantine_reason"].to_pylist()) == reasons
    rows = quarantined(home)
    assert Counter(row["reason"] for row in rows) == reasons
    assert result.plan is not None
    lost = [row for row in rows if row["reason"].startswith("unparsable")]
    texts = [(row["event_time"], row["arrival_time"]) for row in lost]
    assert {text for pair in texts for text in pair if text} >= {*NO_TIMES, "x", "y"}
    for row in lost:
        record, name = json.loads(row["record"]), row["reason"].removeprefix("unparsable_")
        assert record["meta_at" if name == "event_time" else "arrived"] == row[name]
