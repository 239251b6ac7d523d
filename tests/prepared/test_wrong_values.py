"""A definition with any wrong value ends with a short message in `check` and `run`, or with a result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from backstream.cli import app
from backstream.eventtime.instants import HOUR_MS, instant_ms

LONG, ODD = "x" * 5_000, "naïve ✓ 漢字 \u202e"
EXPRESSIONS = [
    *(
        "nope",
        "nope(n)",
        "n +",
        "(n",
        "'",
        "`",
        "*",
        "n; drop table x",
        "n /* c",
        "",
        "n\nn",
        LONG,
        ODD,
        f"sum(`{LONG}`)",
    ),
    *("count(*)", "sum(page)", "sum(sum(n))", "max(array(n))", "row_number() over (order by n)", "(select 1)"),
    *(
        "explode(array(1))",
        "n / 0",
        "sum(n) / 0",
        "cast(page as int)",
        "raise_error('boom')",
        "cast(n as strange)",
    ),
    *("interval 1 day", "date '2024-99-99'", "page.a", "from_json(page, 'bad')", "regexp_extract(page, '(')"),
    *(
        "9223372036854775807 + n",
        "percentile(x, 2)",
        "first(n) filter",
        "to_timestamp(page, 'qqqq')",
        "page rlike '['",
    ),
    *("timestamp_seconds(9e15)", "approx_count_distinct(n, 5.0)", "named_struct('a')", "try_cast(page as int)"),
    *("n + " * 400 + "n", "n + " * 3_000 + "n", "(" * 300 + "n" + ")" * 300, "not " * 300 + "true"),
    *("abs(" * 300 + "n" + ")" * 300, "case when true then " * 100 + "1" + " end" * 100),
]
COLUMNS = ["nope", "", "n +", "`", LONG, ODD, "x", "at", "page.a", "count(*)", "run_id", "window_start", " page"]
TYPES = [
    *(
        "strange",
        "",
        "tinyint",
        "struct<",
        "array<",
        "map<string,int>",
        "decimal(40,2)",
        "decimal(5,9)",
        "interval",
    ),
    *("void", "varchar(0)", "binary", "variant", "int not null", "int, b int", "struct<a:int,a:int>", LONG, ODD),
]
DURATIONS = [
    "1ms",
    "59m",
    "1d",
    "365d",
    "36500d",
    "36501d",
    "-1h",
    "0s",
    "9" * 30 + "d",
    "1mo",
    "",
    LONG,
    "\u0661h",
]
PATTERNS = ["x", "yyyy", "%Y", "hh:mm", "yyyy-MM-dd'T", "[", "G", "qqq", LONG, ODD, "dd/MM/yy HH:mm"]
OPTIONS = {
    "header": ["x", ""],
    "sep": ["ab", "", "漢"],
    "encoding": ["x", "rot13", "hex", "undefined", "cp500", LONG],
    "lineSep": ["", "abc", "\r"],
    "maxColumns": ["x", "1", "-1"],
    "samplingRatio": ["x"],
    "locale": ["x", ODD],
    "timeZone": ["x"],
    "compression": ["x"],
    "inputBufferSize": ["x", "-1"],
    ODD: ["y"],
}
PATHS = [
    "",
    "/nope",
    "/nope/*.json",
    "s3://",
    "http://x",
    "$X",
    "${NOPE}",
    "/" + LONG,
    ODD,
    "[",
    "/dev/null",
    "file://",
]
RANGES = [["1970-01-01", "9999-12-31"], ["x", "y"], ["2024-03-02", "2024-03-01"], ["-9999-01-01", "+99999-01-01"]]


def _wrong_values() -> Iterator[tuple[str, Any]]:
    """Yield the path of a key, and a value."""
    places = ("aggregates/v", "source/where", "source/event_time", "source/derive/d", "derive_after/v")
    yield from ((place, text) for place in (*places, "having/condition") for text in EXPRESSIONS)
    yield from ((f"source/{key}", [name]) for key in ("key", "deduplicate_on") for name in COLUMNS)
    yield from ((f"source/{key}", name) for key in ("partition", "sequence", "arrival_time") for name in COLUMNS)
    yield from ((f"source/columns/{name}", kind) for name in ("at", "n", "page") for kind in TYPES)
    yield from ((f"source/options/{name}", text) for name, texts in OPTIONS.items() for text in texts)
    yield from (("source/event_time_pattern", text) for text in PATTERNS)
    yield from (("source/event_time_unit", unit) for unit in ("s", "ms", "us", "ns", "x", "", 1))
    durations = ("window/size", "window/offset", "backfill/chunk", "source/deduplicate_within")
    yield from ((key, text) for key in durations for text in DURATIONS)
    yield from (("source/path", path) for path in PATHS)
    yield from (("source/event_time_range", span) for span in RANGES)
    yield from (("source/time_zone", zone) for zone in ("x", "", ODD, "../etc", "UTC+25"))
    yield from (("source/records", path) for path in ("Records", "", ODD))
    yield from (("source/transform", name) for name in ("nope:x", "os:getcwd", "json:loads"))
    yield from (("backfill/max_events_per_job", count) for count in (0, -1, 10**30))
    yield from (("publish", {"table": name}) for name in ("a", "a.b", f"{LONG}.x", f"{ODD}.x"))


VALUES = list(_wrong_values())
COLUMN_TYPES = {"at": "timestamp", "n": "bigint", "page": "string", "x": "double"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    first_ms = instant_ms("2024-03-01", "at")
    rows = [{"at": first_ms + n * HOUR_MS, "n": n, "page": "abc"[n % 3], "x": 1.5 * n} for n in range(20)]
    for name in ("parquet", "json", "csv"):
        (folder / name).mkdir()
    columns = {name: [row[name] for row in rows] for name in ("n", "page", "x")}
    table = pa.table({"at": pa.array([row["at"] for row in rows], pa.timestamp("ms", "UTC")), **columns})
    pq.write_table(table, folder / "parquet/a.parquet")
    texts = [row | {"at": f"2024-03-01T{row['n']:02}:00:00Z"} for row in rows]
    (folder / "json/a.json").write_text("".join(f"{json.dumps(row)}\n" for row in texts))
    (folder / "csv/a.csv").write_text("".join(",".join(map(str, row.values())) + "\n" for row in texts))
    return folder


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _definition(folder: Path, form: str, engine: str, path: str, value: Any) -> str:
    content: dict[str, Any] = {
        "name": "wrong",
        "source": {"path": str(folder / form), "format": form, "event_time": "at", "key": ["page"]},
        "window": {"kind": "tumbling", "size": "1h"},
        "aggregates": {"c": "count(*)"},
        "backfill": {"engine": engine},
        "quality": {"quarantined_ratio": {"warn": 1, "fail": 1}},
    }
    if form != "parquet":
        content["source"]["columns"] = dict(COLUMN_TYPES)
    if path == "source/event_time_pattern":
        content["source"]["columns"] = COLUMN_TYPES | {"at": "string"}
    if path == "source/derive/d":
        content["aggregates"]["v"] = "max(d)"
    section = content
    *sections, key = path.split("/")
    for name in sections:
        section = section.setdefault(name, {})
    section[key] = value
    return "".join(f"{name} = {_toml(each)}\n" for name, each in content.items())


def _require_short_messages(folder: Path, form: str, engine: str, path: str, value: Any) -> None:
    """Check and run a definition, and check what is printed."""
    definition, home = folder / "wrong.toml", folder / "home"
    definition.write_text(_definition(folder, form, engine, path, value), encoding="utf-8")
    runner = CliRunner(env={"BACKSTREAM_HOME": str(home)})
    for command in (["check"], ["run", "--since", "2024-03-01", "--until", "2024-03-02", "--replan"]):
        result = runner.invoke(app, [command[0], str(definition), *command[1:]])
        assert isinstance(result.exception, SystemExit | None), command
        assert "Traceback" not in result.output, command
        assert "the trace is" not in result.output, command
        message = result.output.partition("error: ")[2]
        assert len(message.splitlines()) <= 15, command
        assert LONG[:103] not in message.replace(str(folder), ""), command
        assert "\u202e" not in message, command


def _form_of(path: str, form: str) -> str:
    return "csv" if path.startswith(("source/columns", "source/options")) and form == "parquet" else form


BROKEN = st.tuples(st.sampled_from(VALUES), st.sampled_from(["parquet", "json", "csv"]))
SLOW_TESTS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=SLOW_TESTS)
@given(BROKEN)
@pytest.mark.usefixtures("spark")
def test_a_wrong_value_ends_with_a_short_message(source: Path, broken: tuple[tuple[str, Any], str]) -> None:
    (path, value), form = broken
    _require_short_messages(source, _form_of(path, form), "auto", path, value)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=SLOW_TESTS)
@given(BROKEN, st.sampled_from(["native", "spark"]))
@pytest.mark.usefixtures("spark")
def test_a_wrong_value_ends_with_a_short_message_on_each_engine(
    source: Path, broken: tuple[tuple[str, Any], str], engine: str
) -> None:
    (path, value), form = broken
    _require_short_messages(source, _form_of(path, form), engine, path, value)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("aggregates/v", "max(" + "(" * 300 + "n" + ")" * 301),
        ("source/where", "not " * 300 + "true"),
        ("source/key", [""]),
        ("aggregates/v", f"sum(`{LONG}`)"),
        ("having/condition", "named_struct('a')"),
        ("aggregates/v", "approx_count_distinct(n, 5.0)"),
        ("aggregates/v", "max(timestamp_seconds(9e15))"),
    ],
)
def test_a_value_that_once_ended_with_a_trace(source: Path, path: str, value: Any) -> None:
    _require_short_messages(source, "parquet", "spark", path, value)
