from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.runs import replay_chunk
from tests.workflow.history import AT_ONE_TIME, CLICKS, COLUMNS, at, planned, write_clicks, write_definition

from backstream.chunks.replay import replay_chunks
from backstream.errors import SpecError
from backstream.lake.reader import load_rows
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Mode, Plan
from backstream.spark.engine import SparkEngine
from backstream.workflow.audit import audit_run
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.publish import publication_text, publish_run
from backstream.workflow.report import report_run
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

NEVER = datetime(9999, 12, 31, tzinfo=UTC)
BEFORE_ALL = datetime(1969, 7, 20, tzinfo=UTC)

BAD_ROWS = [
    # happened_at, arrived_at, origin, seq, page
    (at("1 05:00"), at("1 05:01"), "A", 0, "home"),
    (None, at("1 05:02"), "A", 1, "home"),
    (NEVER, at("1 05:03"), "A", 2, "home"),
    (BEFORE_ALL, at("1 05:04"), "A", 3, "home"),
    (at("1 05:00"), at("1 05:05"), "A", 0, "home"),  # the first one again
    (at("1 06:00"), at("1 06:01"), "A", 0, "home"),  # its number, but another event
    (at("1 06:30"), None, "B", 0, "home"),
    (at("1 06:31"), at("1 06:32"), "B", None, "home"),
    (at("1 06:33"), at("1 06:34"), None, 1, "home"),
    (at("1 06:35"), at("1 06:36"), "B", 2, "help"),
]


def replayed(spark: SparkSession, plan: Plan) -> list[Manifest]:
    return [replay_chunk(spark, plan, chunk) for chunk in plan.chunks]


def staged(manifests: list[Manifest], suffix: str) -> list[dict[str, Any]]:
    """The rows that all chunks leave for a table."""
    tables = [pq.read_table(file.path) for each in manifests for file in each.files[suffix]]
    return pa.concat_tables(tables).to_pylist() if tables else []


def clicks_of(published: list[dict[str, Any]]) -> dict[str, int]:
    return {f"{row['window_start']:%dT%H:%M} {row['page']}": row["clicks"] for row in published}


@pytest.mark.parametrize("mode", Mode)
def test_every_bad_row_counts_in_its_source_partition_and_changes_no_other_row(
    spark: SparkSession, tmp_path: Path, mode: Mode
) -> None:
    write_clicks(tmp_path / "data/a.parquet", BAD_ROWS)

    manifests = replayed(spark, planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME), mode=mode))

    assert [each.events_read for each in manifests] == [10]
    assert sum_fates(manifests) == {
        "A": {"on_time": 2, "duplicate": 1, "quarantined": 3},
        "B": {"on_time": 1, "quarantined": 2},
        "unknown": {"quarantined": 1},
    }
    assert clicks_of(staged(manifests, "")) == {"01T05:00 home": 1, "01T06:00 home": 1, "01T06:00 help": 1}
    assert {(row["source_partition"], row["events"]) for row in staged(manifests, "metrics")} == {
        ("A", 1),
        ("B", 1),
    }


def test_a_bad_row_is_answered_for_by_the_same_chunk_alone_and_together_with_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    for day in (1, 2, 3):
        bad = [(None, at(f"{day} 05:02"), "A", number, "home") for number in range(day)]
        good = (at(f"{day} 05:00"), at(f"{day} 05:01"), "B", 0, "home")
        write_clicks(tmp_path / f"data/{day}.parquet", [good, *bad])
    definition = write_definition(tmp_path, AT_ONE_TIME)
    plans = [planned(tmp_path / each, definition, until="2024-03-04") for each in ("alone", "together")]

    alone, together = replayed(spark, plans[0]), list(replay_chunks(SparkEngine(spark), plans[1], plans[1].chunks))

    for manifests in (alone, together):
        assert [each.events_read for each in manifests] == [2, 3, 4]
        assert [each.fates["A"] for each in manifests] == [{"quarantined": number} for number in (1, 2, 3)]
        assert [len(staged([each], "quarantine")) for each in manifests] == [1, 2, 3]
    assert len({each.attempt for each in together}) == 1


def test_a_row_in_quarantine_is_kept_whole_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", BAD_ROWS)

    kept = staged(replayed(spark, planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME))), "quarantine")

    assert {(row["reason"], row["source_partition"], row["event_time"], row["arrival_time"]) for row in kept} == {
        ("null_event_time", "A", None, "2024-03-01 05:02:00"),
        ("absurd_event_time", "A", "9999-12-31 00:00:00", "2024-03-01 05:03:00"),
        ("absurd_event_time", "A", "1969-07-20 00:00:00", "2024-03-01 05:04:00"),
        ("null_arrival_time", "B", "2024-03-01 06:30:00", None),
        ("null_sequence", "B", "2024-03-01 06:31:00", "2024-03-01 06:32:00"),
        ("null_source_partition", None, "2024-03-01 06:33:00", "2024-03-01 06:34:00"),
    }
    (nameless,) = (row for row in kept if row["reason"] == "null_source_partition")
    assert json.loads(nameless["record"]) == {
        "happened_at": "2024-03-01T06:33:00.000Z",
        "arrived_at": "2024-03-01T06:34:00.000Z",
        "origin": None,
        "seq": 1,
        "page": "home",
    }
    assert nameless["file"] == f"file:{tmp_path}/data/a.parquet"


def test_text_that_names_no_instant_or_number_is_kept_as_it_was_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = {**COLUMNS, "happened_at": pa.string(), "arrived_at": pa.string(), "seq": pa.string()}
    written = [
        ("2024-03-01T05:00:00Z", "2024-03-01T05:01:00Z", "A", "0", "home"),
        ("2024-03-01T00:30:00-05:00", "2024-03-01T05:31:00Z", "A", "1", "home"),
        ("soon", "2024-03-01T05:02:00Z", "A", "2", "home"),
        ("2024-02-30T05:00:00Z", "2024-03-01T05:03:00Z", "A", "3", "home"),
        ("2024-03-01T05:04:00Z", "later", "A", "4", "home"),
        ("2024-03-01T05:05:00Z", "2024-03-01T05:06:00Z", "A", "five", "home"),
    ]
    write_clicks(tmp_path / "data/a.parquet", written, texts)

    manifests = replayed(spark, planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME)))

    assert sum_fates(manifests) == {"A": {"on_time": 2, "quarantined": 4}}
    assert {
        (row["reason"], row["event_time"], row["arrival_time"]) for row in staged(manifests, "quarantine")
    } == {
        ("unparsable_event_time", "soon", "2024-03-01T05:02:00Z"),
        ("unparsable_event_time", "2024-02-30T05:00:00Z", "2024-03-01T05:03:00Z"),
        ("unparsable_arrival_time", "2024-03-01T05:04:00Z", "later"),
        ("null_sequence", "2024-03-01T05:05:00Z", "2024-03-01T05:06:00Z"),
    }
    assert clicks_of(staged(manifests, "")) == {"01T05:00 home": 2}


def test_the_range_of_event_times_that_make_sense_can_be_widened(spark: SparkSession, tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(BEFORE_ALL, at("1 05:00"), "A", 0, "home")])
    wider = CLICKS.replace("key =", 'event_time_range = ["1900-01-01", "2100-01-01"]\nkey =')

    plan = planned(tmp_path, write_definition(tmp_path, wider), "1969-07-20", "1969-07-21")

    assert sum_fates(replayed(spark, plan)) == {"A": {"on_time": 1}}


@pytest.mark.parametrize("mode", Mode)
def test_chunks_count_each_bad_row_once_and_leave_none_out(
    spark: SparkSession, tmp_path: Path, mode: Mode
) -> None:
    #  file  a          b            c: read by nobody
    #  days  1 and 2    2 alone      5
    bad = [(None, at("1 05:02"), "A", 1, "home"), (at("9 00:00"), None, "A", 2, "home")]
    write_clicks(tmp_path / "data/a.parquet", [*one_click("1 05:00"), *one_click("2 05:00"), *bad])
    write_clicks(tmp_path / "data/b.parquet", [*one_click("2 07:00"), (None, at("2 07:02"), "A", 3, "home")])
    write_clicks(tmp_path / "data/c.parquet", [*one_click("5 07:00"), (None, at("5 07:02"), "A", 4, "home")])

    plan = planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME), until="2024-03-04", mode=mode)
    manifests = replayed(spark, plan)

    assert [each.fates for each in manifests] == [
        {"A": {"on_time": 1, "quarantined": 2}},
        {"A": {"on_time": 2, "quarantined": 1}},
        {},
    ]
    assert [each.events_read for each in manifests] == [3, 3, 0]


def one_click(text: str) -> list[tuple[datetime, datetime, str, int, str]]:
    return [(at(text), at(text), "A", 0, "home")]


def test_bad_rows_are_found_whatever_folders_are_called_and_wildcards_in_names_stand_for_themselves(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_clicks(tmp_path / "data/at=2024-03-01 05%3A00 {é} #+;[ab]*/a?.parquet", BAD_ROWS[:2])
    write_clicks(tmp_path / "data/at=2024-03-01 05%3A00 {é} #+;a/ab.parquet", BAD_ROWS[5:7])

    manifests = replayed(spark, planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME)))

    assert sum_fates(manifests) == {"A": {"on_time": 2, "quarantined": 1}, "B": {"quarantined": 1}}


def test_bad_rows_do_not_reach_the_table_that_is_published(
    spark: SparkSession, tmp_path: Path, lenient_suite: str
) -> None:
    write_clicks(tmp_path / "data/a.parquet", BAD_ROWS)
    plan = planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME + lenient_suite))
    replayed(spark, plan)

    audit_run(plan)
    publication = publish_run(plan)
    report_run(plan)

    assert (publication.rows, publication.replaced_rows) == (3, 0)
    assert clicks_of(load_rows(plan.home, "clicks").to_pylist()) == {
        "01T05:00 home": 1,
        "01T06:00 help": 1,
        "01T06:00 home": 1,
    }
    assert load_rows(plan.home, "clicks__quarantine").num_rows == 6
    assert publication_text(plan).splitlines()[2:7] == [
        "partition      events       on_time   duplicate quarantined",
        "A                   6 =           2           1           3",
        "B                   3 =           1           0           2",
        "unknown             1 =           0           0           1",
        "all                10 =           3           1           6",
    ]
    assert "quarantined" in plan.folder.report.read_text()


def files_of_other_days(folder: Path) -> None:
    write_clicks(folder / "a.parquet", one_click("5 07:00"))


def a_file_that_does_not_tell_its_days(folder: Path) -> None:
    files_of_other_days(folder)
    pq.write_table(pq.read_table(folder / "a.parquet"), folder / "a.parquet", write_statistics=False)


def a_file_without_rows(folder: Path) -> None:
    write_clicks(folder / "a.parquet", [])


@pytest.mark.parametrize("write", [files_of_other_days, a_file_that_does_not_tell_its_days, a_file_without_rows])
def test_an_empty_range_is_published_as_no_rows_in_place_of_those_before(
    spark: SparkSession, tmp_path: Path, lenient_suite: str, write: Any
) -> None:
    definition = write_definition(tmp_path, AT_ONE_TIME + lenient_suite)
    write_clicks(tmp_path / "data/a.parquet", one_click("1 05:00"))
    before = planned(tmp_path, definition)
    replayed(spark, before)
    audit_run(before)
    publish_run(before)
    write(tmp_path / "data")

    plan = planned(tmp_path, definition)
    manifests = replayed(spark, plan)
    audit_run(plan)
    publication = publish_run(plan)
    report_run(plan)

    assert (manifests[0].events_read, manifests[0].fates) == (0, {})
    assert (publication.rows, publication.replaced_rows) == (0, 1)
    assert load_rows(plan.home, "clicks").num_rows == 0
    assert plan.folder.report.exists()


def test_a_replay_of_a_day_without_an_event_gives_nothing(spark: SparkSession, tmp_path: Path) -> None:
    a_file_without_rows(tmp_path / "data")
    around = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in (1, 3)]
    write_clicks(tmp_path / "data/b.parquet", around[:1])
    write_clicks(tmp_path / "data/c.parquet", around[1:])
    silent = planned(
        tmp_path, write_definition(tmp_path, AT_ONE_TIME), "2024-03-02", "2024-03-03", mode=Mode.REPLAY
    )

    manifests = replayed(spark, silent)

    assert [(each.events_read, each.fates, sum(each.files.values(), ())) for each in manifests] == [(0, {}, ())]


def test_an_event_time_that_is_not_an_instant_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(None, None, "A", 0, "home")])

    definition = write_definition(tmp_path, event_time='"unix_millis(happened_at)"')
    with pytest.raises(SpecError) as caught:
        prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    assert str(caught.value) == (
        f"source.event_time must be an instant, got bigint from 'unix_millis(happened_at)' ({definition})\n\n"
        'hint: set source.event_time_unit to "s", "ms", "us", or "ns"'
    )


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("timestamp_millis(happened_at)", pa.int64(), 1_709_269_200_000),
        ("timestamp_seconds(happened_at)", pa.int64(), 1_709_269_200),
        (
            "to_utc_timestamp(cast(happened_at as timestamp), 'America/New_York')",
            pa.timestamp("us"),
            datetime(2024, 3, 1, 0, 0),  # noqa: DTZ001 - a local time without zone is what this is about
        ),
    ],
)
def test_event_time_expressions_from_the_hints_work(
    spark: SparkSession, tmp_path: Path, expression: str, kind: pa.DataType, value: object
) -> None:
    write_clicks(
        tmp_path / "data/a.parquet", [(value, at("1 05:01"), "A", 0, "home")], {**COLUMNS, "happened_at": kind}
    )

    definition = write_definition(tmp_path, event_time=f'"{expression}"')
    prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))
    manifests = replayed(spark, planned(tmp_path, definition))

    assert clicks_of(staged(manifests, "")) == {"01T05:00 home": 1}
