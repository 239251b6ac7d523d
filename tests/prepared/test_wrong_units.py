"""Records of a wrong unit lie outside of every range; plan, gate, and report name them all the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.prepared.test_prepared import write_definition

import backstream
from backstream.errors import PlanError, QualityError, RangeError
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_inputs
from backstream.runs.plan import Plan
from backstream.runs.results import Verdict
from backstream.workflow.checks.check_sample import check_sample

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

MARCH_MS = 1_709_251_200_000
IN_MARCH = [MARCH_MS + minute * 60_000 for minute in range(100)]
DAY = ("2024-03-01", "2024-03-02")
REMEDY = "correct them in [source.derive], or leave them out by source.where"
SOURCE = """
event_time = "ts"
event_time_unit = "ms"
format = "{format}"
columns = {{ ts = "bigint", amount = "bigint" }}
{more}"""
JSON = SOURCE.format(format="json", more="")
CSV = SOURCE.format(format="csv", more='options = { header = "true" }\n')
TEXT = CSV.replace('ts = "bigint"', 'ts = "string"')


def write_json(folder: Path, name: str, times: Sequence[int]) -> Path:
    path = folder / f"data/{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"ts": at, "amount": 1}) + "\n" for at in times))
    return path


def write_csv(folder: Path, name: str, times: Sequence[int]) -> Path:
    path = folder / f"data/{name}.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("ts,amount\n" + "".join(f"{at},1\n" for at in times))
    return path


def plan(folder: Path, source: str) -> Plan:
    return backstream.plan(write_definition(folder, source), *DAY, home=folder / "home")


def test_a_run_of_another_day_names_seconds_among_milliseconds(tmp_path: Path) -> None:
    write_json(tmp_path, "a", IN_MARCH)
    wrong = write_json(tmp_path, "b", [MARCH_MS // 1_000, MARCH_MS // 1_000 + 5])
    definition = write_definition(tmp_path, JSON)

    with pytest.raises(QualityError) as caught:
        backstream.run(definition, *DAY, home=tmp_path / "home")

    sentence = (
        f"source.event_time of 2 of 102 records is from 1970-01-20T18:47:31.200Z to 1970-01-20T18:47:31.205Z,"
        f" e.g., 1709251200 in {wrong}: with the unit s instead of ms it would be 2024-03-01T00:00Z; {REMEDY}"
    )
    assert str(caught.value).startswith(f"2 % of all records have implausible times ({sentence}); ")
    result = backstream.run(definition, *DAY, home=tmp_path / "home", gate_override="the day has no seconds")
    assert ("Implausible times", sentence) in describe_inputs(result.plan)
    report = result.plan.folder.report.read_text()
    assert sentence in report
    assert "the share of implausible times is within its hard limit" in report
    assert json.loads(result.plan.folder.plan.read_text())["implausible"] == [
        {
            "time": "source.event_time",
            "records": 2,
            "total": 102,
            "first_ms": 1_709_251_200,
            "last_ms": 1_709_251_205,
            "example": "1709251200",
            "file": str(wrong),
            "unit": "s",
            "reason": f"with the unit s instead of ms it would be 2024-03-01T00:00Z; {REMEDY}",
        }
    ]
    assert Plan.read(result.plan.folder.plan) == result.plan


@pytest.mark.parametrize("engine", ["native", "spark"])
def test_the_engines_read_times_after_the_year_9999(engine: str, tmp_path: Path) -> None:
    write_json(tmp_path, "a", [*IN_MARCH, MARCH_MS * 1_000])
    definition = write_definition(tmp_path, JSON)
    limits = "implausible_ratio = { warn = 0.1, fail = 0.1 }"
    definition.write_text(f'{definition.read_text()}{limits}\n[backfill]\nengine = "{engine}"\n')

    result = backstream.run(definition, *DAY, home=tmp_path / "home")

    assert result.audit.verdict is Verdict.PASS
    assert (result.plan.implausible[0].unit, result.publication.rows) == ("us", 2)


@pytest.mark.parametrize("source", [pytest.param(CSV, id="numbers"), pytest.param(TEXT, id="text")])
def test_spark_names_each_unit_and_placeholder(source: str, tmp_path: Path) -> None:
    write_csv(tmp_path, "a", IN_MARCH)
    times = {"s": MARCH_MS // 1_000, "us": MARCH_MS * 1_000 + 1, "ns": MARCH_MS * 1_000_000 + 7}
    files = {unit: write_csv(tmp_path, unit, [at]) for unit, at in times.items()}
    zero = write_csv(tmp_path, "zero", [0, -1])

    found = plan(tmp_path, source).implausible

    assert sorted((each.unit, each.records, each.example, each.file) for each in found) == [
        ("", 2, "-1", str(zero)),
        ("ns", 1, "1709251200000000007", str(files["ns"])),
        ("s", 1, "1709251200", str(files["s"])),
        ("us", 1, "1709251200000001", str(files["us"])),
    ]


def test_a_source_in_another_unit_has_no_event_in_the_range_and_the_error_names_the_unit(tmp_path: Path) -> None:
    file = write_json(tmp_path, "a", [at // 1_000 for at in IN_MARCH])
    definition = write_definition(tmp_path, JSON)

    with pytest.raises(RangeError) as caught:
        backstream.plan(definition, *DAY, home=tmp_path / "home")

    assert str(caught.value) == (
        f"no event in range 2024-03-01T00:00Z to 2024-03-02T00:00Z ({definition}, source.path)\n"
        "  orders has events from 1970-01-20T18:47:31.200Z to 1970-01-20T18:47:37.140Z\n"
        "  source.event_time of all 100 records is from 1970-01-20T18:47:31.200Z to 1970-01-20T18:47:37.140Z,"
        f" e.g., 1709251200 in {file}: with the unit s instead of ms it would be 2024-03-01T00:00Z;"
        ' set source.event_time_unit = "s"\n\n'
        "hint: the possible range is since=1970-01-20 until=1970-01-21; until is excluded"
    )


def test_a_replay_is_refused_if_an_arrival_time_is_after_the_year_9999(tmp_path: Path) -> None:
    path = tmp_path / "data/a.json"
    path.parent.mkdir()
    arrivals = [*IN_MARCH[1:], MARCH_MS * 1_000]
    lines = ({"ts": at, "arrived": arrived, "amount": 1} for at, arrived in zip(IN_MARCH, arrivals, strict=True))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = (
        JSON.replace("{ ts", '{ arrived = "bigint", ts') + 'arrival_time = "arrived"\narrival_time_unit = "ms"\n'
    )
    definition = write_definition(tmp_path, source)

    with pytest.raises(PlanError) as caught:
        backstream.plan(definition, *DAY, mode="replay", home=tmp_path / "home", allow_unsealed=True)

    assert str(caught.value) == (
        f"cannot replay orders: an arrival time is not in the years 1 to 9999 ({definition})\n"
        f"  source.arrival_time of 1 of 100 records is in the year 56,134, e.g., 1709251200000000 in {path}:"
        f" with the unit us instead of ms it would be 2024-03-01T00:00Z; {REMEDY}"
    )


def test_a_sample_names_implausible_times(tmp_path: Path, spark: SparkSession) -> None:
    write_csv(tmp_path, "a", [*IN_MARCH, 0])

    sample = check_sample(spark, write_definition(tmp_path, CSV), 1_000, Home(tmp_path / "home"))

    (found,) = sample.implausible
    assert (found.records, found.total, found.example) == (1, 101, "0")


def test_an_old_record_is_plausible(tmp_path: Path) -> None:
    write_json(tmp_path, "a", [*IN_MARCH, 1_506_556_800_000])

    assert plan(tmp_path, JSON).implausible == ()


def test_the_sources_of_a_union_have_their_own_units(tmp_path: Path) -> None:
    write_json(tmp_path, "a", IN_MARCH)
    wrong = write_csv(tmp_path, "b", [at // 1_000 for at in IN_MARCH[:5]])
    definition = tmp_path / "both.toml"
    part = '[[source]]\nname = "{name}"\npath = "{path}"\nevent_time = "ts"\nevent_time_unit = "{unit}"\n'
    columns = 'columns = { ts = "bigint", amount = "bigint" }\n'
    definition.write_text(
        'name = "both"\n'
        + part.format(name="mobile", path=f"{tmp_path}/data/a.json", unit="ms")
        + f'format = "json"\n{columns}'
        + part.format(name="web", path=wrong, unit="us")
        + f'format = "csv"\noptions = {{ header = "true" }}\n{columns}'
        + '[window]\nkind = "tumbling"\nsize = "1h"\n[aggregates]\nn = "count(*)"\n'
    )

    (found,) = backstream.plan(definition, *DAY, home=tmp_path / "home").implausible

    assert str(found).startswith("event_time of source 'web' of all 5 records is ")
    assert (found.unit, found.example) == ("s", "1709251200")


@pytest.mark.parametrize(
    "event_time", ["timestamp_millis(ts)", "cast(ts / 1000 as timestamp)", "to_timestamp(ts / 1000)"]
)
def test_a_time_of_parquet_is_examined_however_it_is_written(event_time: str, tmp_path: Path) -> None:
    wrong = tmp_path / "data/b.parquet"
    wrong.parent.mkdir()
    for path, times in {wrong.with_name("a.parquet"): IN_MARCH, wrong: [MARCH_MS // 1_000]}.items():
        pq.write_table(pa.table({"ts": times, "amount": [1] * len(times)}), path)

    (found,) = plan(tmp_path, f'event_time = "{event_time}"\nformat = "parquet"\n').implausible

    assert (found.records, found.unit, found.file) == (1, "s", str(wrong))
