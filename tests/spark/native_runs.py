"""Records of every type, and runs on one of the two engines, for the tests that compare the engines."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import definition_of
from tests.spark.runs import fates, planned, rows

from backstream.chunks.replay import replay_chunks
from backstream.native import task_cuts
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode
from backstream.spark.engine import SparkEngine

KEYS = {
    "small": pa.int32(),
    "number": pa.int64(),
    "name": pa.string(),
    "day": pa.date32(),
    "flag": pa.bool_(),
    "price": pa.decimal128(12, 3),
}
VALUES = {
    "b": pa.int8(),
    "i": pa.int32(),
    "l": pa.int64(),
    "d": pa.decimal128(20, 4),
    "f": pa.float32(),
    "x": pa.float64(),
    "s": pa.string(),
    "t": pa.timestamp("us", "UTC"),
}


def cut_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a task to about twenty records."""
    monkeypatch.setattr(task_cuts, "MIN_TASK_ROWS", 1)
    monkeypatch.setattr(task_cuts, "TASK_ROWS", 20)
    monkeypatch.setattr(task_cuts, "MAX_READ_RATIO", 1_000)


def native_definition(folder: Path, chunk: str = "1d", **sections: Any) -> dict[str, Any]:
    return definition_of(folder, **{"backfill": {"chunk": chunk, "engine": "native"}, **sections})


def write_records(
    folder: Path,
    seed: int,
    since: datetime,
    *,
    broken: bool = False,
    without: Sequence[str] = (),
    narrow: Sequence[str] = (),
) -> None:
    """Write three files of records with nulls, extremes, and Unicode in keys and values."""
    chance = random.Random(seed)  # noqa: S311 - a test's records, not a secret
    folder.mkdir(parents=True)
    for number in range(3):
        result = [_record(chance, since, number * 200 + place) for place in range(200)]
        if broken:
            for record in result[::7]:
                record[chance.choice(["happened_at", "origin", "seq"])] = None
            result[1]["happened_at"] = datetime(2150, 1, 1, tzinfo=UTC)
        schema = pa.schema(
            [
                ("happened_at", pa.timestamp("us", "UTC")),
                ("arrived_at", pa.timestamp("us", "UTC")),
                ("origin", pa.string()),
                ("seq", pa.int64()),
                *KEYS.items(),
                *((name, pa.int32() if name in narrow else kind) for name, kind in VALUES.items()),
            ]
        )
        if narrow:
            result = [{**record, **dict.fromkeys(narrow, 7)} for record in result]
        table = pa.Table.from_pylist(result, schema).drop_columns(list(without))
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=70)


def _record(chance: random.Random, since: datetime, number: int) -> dict[str, Any]:
    arrived = since + timedelta(microseconds=number * 430_000_123)
    happened = arrived - timedelta(
        microseconds=chance.choice([1, 999, 60_000_000, 9_000_000_000]) * chance.random()
    )
    values: Mapping[str, Sequence[Any]] = {
        "small": [None, -128, 127, 0],
        "number": [None, 2**63 - 1, -(2**63), 5],
        "name": [None, "", "a", "A", "ß", "日本", "\U0001f600", "a\u0000b", "a'b\"c"],
        "day": [None, date(1, 1, 1), date(2024, 2, 29)],
        "flag": [None, True, False],
        "price": [None, Decimal("0.001"), Decimal("-999999999.999")],
        "b": [None, -128, 127],
        "i": [None, -(2**31), 2**31 - 1, 3],
        "l": [None, 2**53 + 1, -7, 0],
        "d": [None, Decimal("9999999999999999.9999"), Decimal("-0.0001")],
        "f": [None, 0.1, 1e30, -1e30],
        "x": [None, 0.1, 0.2, -0.0, 1e300, float("nan"), float("inf"), 1e-300],
        "s": [None, "", "z", "ß", "日本", "\U0001f600", "\uffff"],
        "t": [None, since, since + timedelta(microseconds=1), datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    }
    drawn = {name: chance.choice(several) for name, several in values.items()}
    return {"happened_at": happened, "arrived_at": arrived, "origin": chance.choice("AB"), "seq": number, **drawn}


def run_engine(
    spark: SparkSession,
    folder: Path,
    data: Path,
    engine: str,
    mode: Mode,
    sections: Mapping[str, Any],
    since: int = 0,
    **source: Any,
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every table, sorted, and the fates."""
    folder.mkdir()
    content = native_definition(data, **{"backfill": {"engine": engine}, **sections})
    content["source"] = content["source"] | source
    plan = planned(folder, content, mode, since=since, until=since + 3)
    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
    result = {suffix: _in_order(manifests, suffix) for suffix in plan.tables}
    counted = [{"partition": name, **counts} for name, counts in fates(manifests).items()]
    return {**result, "fates": [*counted, {"read": sum(each.events_read for each in manifests)}]}


def _in_order(manifests: list[Manifest], suffix: str) -> list[dict[str, Any]]:
    result = [{name: value for name, value in row.items() if name != "run_id"} for row in rows(manifests, suffix)]
    return sorted(result, key=lambda row: repr([row[name] for name in sorted(row)]))
