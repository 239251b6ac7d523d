"""An error of a reader or an engine ends with one sentence: the key or column, the file, and a remedy."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from backstream.chunks.threads import Threads
from backstream.errors import BackstreamError
from backstream.runs.home import Home
from backstream.workflow.checks.check_definition import check_definition
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import LocalRunner, SparkRunner

AT = datetime(2024, 3, 1, 8, tzinfo=UTC)
COLUMNS = {"ts": "string", "v": "bigint", "is_new": "boolean", "page": "struct<`id`:bigint>"}


def write_definition(folder: Path, source: str, value: str = "count(*)") -> Path:
    definition = folder / "orders.toml"
    definition.write_text(
        f'name = "orders"\n[source]\npath = "{folder}/data"\n{source}\n'
        f'[window]\nkind = "tumbling"\nsize = "1h"\n[aggregates]\nv = {json.dumps(value)}\n'
    )
    return definition


def write_table(folder: Path, **columns: Any) -> None:
    (folder / "data").mkdir()
    pq.write_table(
        pa.table({"ts": pa.array([AT] * 3, pa.timestamp("us", "UTC")), **columns}), folder / "data/a.parquet"
    )


@pytest.mark.parametrize(
    ("times", "problem", "hint"),
    [
        ('event_time = "tss"', "source.event_time names 'tss', which is not a column", "the source has ts, v,"),
        ('event_time = "page.at"', "source.event_time names 'page.at', which is not a column", "source has"),
        ('event_time = "is_new"', "source.event_time must be an instant, got boolean from 'is_new'", "use an"),
        (
            'event_time = "v"',
            "source.event_time must be an instant, got bigint from 'v'",
            "source.event_time_unit",
        ),
        (
            'event_time = "ts"\narrival_time = "page.id"',
            "source.arrival_time must be an instant, got bigint from 'page.id'",
            "source.arrival_time_unit",
        ),
        (
            'event_time = "ts"\nkey = ["nope"]',
            "source.key names 'nope', which is not a column",
            "the source has",
        ),
        (
            'event_time = "concat(tss, v)"',
            "source.event_time names 'tss', which is not a column, in 'concat(tss, v)'",
            "the source has",
        ),
        ('event_time = "v + v"', "source.event_time must be an instant, got bigint from 'v + v'", "_unit"),
        (
            'event_time = "TS"\nwhere = "V > 1 and page.nope is null"',
            "source.where names 'page.nope', which is not a column, in 'V > 1 and page.nope is null'",
            "the source has",
        ),
        (
            'event_time = "ts"\nderive = { w = "V + 1", x = "w + nope" }',
            "source.derive.x names 'nope', which is not a column, in 'w + nope'",
            "the source has",
        ),
    ],
)
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_the_local_runner_names_a_wrong_time_instead_of_spark(
    form: str, times: str, problem: str, hint: str, tmp_path: Path
) -> None:
    if form == "json":
        (tmp_path / "data").mkdir()
        (tmp_path / "data/a.json").write_text('{"ts": "2024-03-01T08:00:00Z", "v": 1}\n')
    else:
        write_table(tmp_path, v=[1, 2, 3], is_new=[True] * 3, page=[{"id": 1}] * 3)
    columns = "columns = {{ {} }}\n".format(", ".join(f'{name} = "{kind}"' for name, kind in COLUMNS.items()))
    given = columns if form == "json" else "prepare = true\n"
    definition = write_definition(tmp_path, f'format = "{form}"\n{given}{times}')

    with pytest.raises(BackstreamError) as caught:
        prepare_source(definition, Home(tmp_path / "home"), LocalRunner(Threads()))

    message = str(caught.value)
    assert message.startswith(f"{problem} ({definition})\n\nhint: ")
    assert hint in message
    assert "Spark" not in message


def test_a_condition_of_the_local_runner_must_be_true_or_false(tmp_path: Path) -> None:
    write_table(tmp_path, v=[1, 2, 3])
    definition = write_definition(tmp_path, 'format = "parquet"\nevent_time = "ts"\nwhere = "V + 1"')

    with pytest.raises(BackstreamError) as caught:
        prepare_source(definition, Home(tmp_path / "home"), LocalRunner(Threads()))

    assert str(caught.value) == f"source.where must be true or false, got bigint from 'V + 1' ({definition})"


@pytest.mark.parametrize(
    ("declared", "kind"),
    [("long", "bigint"), ("Integer", "int"), ("NUMERIC(15, 0)", "decimal(15,0)"), ("decimal", "decimal(10,0)")],
)
def test_a_type_can_have_any_of_its_names_in_spark(declared: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.json").write_text('{"ts": 1709280000000}\n')
    source = f'format = "json"\nevent_time = "ts"\nevent_time_unit = "ms"\ncolumns = {{ ts = "{declared}" }}'

    checked = check_definition(write_definition(tmp_path, source, "max(ts)"), Home(tmp_path / "home"))

    assert (checked.problems, checked.columns) == ((), {"ts": kind})


def test_fields_that_only_spark_finds_are_left_to_it(spark: SparkSession, tmp_path: Path) -> None:
    write_table(
        tmp_path,
        tags=pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
        page=[{"names": [{"id": number}]} for number in range(3)],
    )
    where = "tags.a = 1 and page.names.id[0] < 2 and _metadata.file_name = 'a.parquet'"
    definition = write_definition(
        tmp_path, f'format = "parquet"\nevent_time = "ts"\nwhere = "{where}"', "max(tags.a)"
    )

    result = prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    assert result is not None
    assert (result.counts.read, result.counts.left_out) == (3, 1)


def test_a_file_without_a_byte_has_no_records_in_any_encoding(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_bytes(b"")
    (tmp_path / "data/b.csv").write_bytes(b"ts\n2024-03-01T08:00:00Z\n")
    source = (
        'format = "csv"\nevent_time = "ts"\ncolumns = { ts = "string" }\n'
        'options = { header = "true", encoding = "windows-1252" }'
    )

    result = prepare_source(
        write_definition(tmp_path, source), Home(tmp_path / "home"), SparkRunner(lambda: spark)
    )

    assert result is not None
    assert result.counts.read == 1


def test_instants_in_int96_and_in_nanoseconds_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number, is_int96 in enumerate((True, False)):
        instants = pa.array([AT], pa.timestamp("ns", "UTC"))
        path = tmp_path / f"data/{number}.parquet"
        pq.write_table(pa.table({"ts": instants}), path, use_deprecated_int96_timestamps=is_int96)
    definition = write_definition(tmp_path, 'format = "parquet"\nevent_time = "ts"')

    prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    prepared = [pq.read_table(path) for path in (tmp_path / "home").rglob("part-*.parquet")]
    assert [at for table in prepared for at in table["prepared_event_time"].to_pylist()] == [AT, AT]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_time_of_orc_without_a_zone_is_in_the_zone_of_the_source(
    spark: SparkSession, zone: str, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    local = pa.array([AT.replace(tzinfo=None)], pa.timestamp("us"))
    orc.write_table(pa.table({"ts": local}), tmp_path / "data/a.orc")
    source = 'format = "orc"\nevent_time = "ts"'
    with pytest.raises(BackstreamError, match="must be an instant, got timestamp_ntz from 'ts'"):
        prepare_source(write_definition(tmp_path, source), Home(tmp_path / "home"), SparkRunner(lambda: spark))

    definition = write_definition(tmp_path, f'{source}\ntime_zone = "{zone}"')
    prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    (prepared,) = (tmp_path / "home").rglob("part-*.parquet")
    assert pq.read_table(prepared)["prepared_event_time"].to_pylist() == [AT.replace(tzinfo=ZoneInfo(zone))]


def test_a_column_with_any_spelling_and_a_column_of_a_later_file_are_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_table(tmp_path, v=[1, 2, 3])
    pq.write_table(
        pa.table({"ts": pa.array([AT], pa.timestamp("us", "UTC")), "w": [4]}), tmp_path / "data/b.parquet"
    )
    definition = write_definition(
        tmp_path, 'format = "parquet"\nprepare = true\nevent_time = "TS"\nkey = ["w"]', "max(v)"
    )

    result = prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    assert result is not None
    assert (result.counts.read, result.counts.unreadable) == (4, 0)


def test_a_column_without_a_name_is_prepared_under_one(spark: SparkSession, tmp_path: Path) -> None:
    write_table(tmp_path, **{"": [1, 2, 3]})
    definition = write_definition(tmp_path, 'format = "parquet"\nevent_time = "ts"', "max(``)")

    prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    (prepared,) = (tmp_path / "home").rglob("part-*.parquet")
    assert pq.read_table(prepared)["_"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([time(8)] * 3, pa.time64("us")), "time64[us]"),
        (pa.array([Decimal("1" * 50)] * 3, pa.decimal256(50)), "decimal256(50, 0)"),
    ],
)
def test_a_column_that_spark_cannot_read_is_named_with_its_file(
    spark: SparkSession, tmp_path: Path, values: pa.Array, kind: str
) -> None:
    write_table(tmp_path, odd=values)
    definition = write_definition(tmp_path, 'format = "parquet"\nprepare = true\nevent_time = "ts"')

    with pytest.raises(BackstreamError) as caught:
        prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    assert str(caught.value).startswith(
        f"column 'odd' is of a type that Spark cannot read: {kind} ({tmp_path}/data/a.parquet)\n\nhint: write it"
    )


@pytest.mark.parametrize("cut", [5, 8_000])
def test_an_avro_file_that_is_cut_off_is_called_damaged(spark: SparkSession, tmp_path: Path, cut: int) -> None:
    stream = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "ts", "type": "long"}]}
    fastavro.writer(stream, schema, [{"ts": 1_709_251_200_000 + number} for number in range(2_000)])
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.avro").write_bytes(stream.getvalue()[:-cut])
    definition = write_definition(tmp_path, 'format = "avro"\nevent_time = "ts"\nevent_time_unit = "ms"')

    with pytest.raises(BackstreamError) as caught:
        prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    assert "data/a.avro: it is damaged, perhaps cut off (" in str(caught.value)


def test_a_damaged_page_is_a_sentence_of_the_local_runner(tmp_path: Path) -> None:
    write_table(tmp_path, v=[1, 2, 3])
    file = tmp_path / "data/a.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])  # the footer is as it was
    definition = write_definition(tmp_path, 'format = "parquet"\nevent_time = "ts"', "max(v)")
    command = ["run", str(definition), "--since", "2024-03-01", "--until", "2024-03-02", "--runner", "local"]

    ended = subprocess.run(
        [sys.executable, "-m", "backstream.cli", *command],
        env={"BACKSTREAM_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    message = ended.stderr[ended.stderr.index("error: ") :]
    assert message.startswith("error: the native engine could not compute")
    assert f"{file}" in message
    assert "the trace is in " in message
    assert "hint: if a file is damaged, restore it" in message
