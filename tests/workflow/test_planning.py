from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.workflow.history import CLICKS, COLUMNS, INSTANT, at, planned, write_clicks, write_definition

from backstream.errors import BackstreamError, PlanError, SpecError
from backstream.eventtime.instants import instant_text
from backstream.runs.plan import ArrivalOrder, Mode, Plan

ONE_DAY = [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("1 06:00"), at("1 06:10"), "A", 1, "home")]


def refusal(folder: Path, error: type[BackstreamError], **lines: str) -> str:
    """Return the error of a plan of one day, without the path of the folder."""
    mode = Mode(lines.pop("mode", "recompute"))
    with pytest.raises(error) as caught:
        planned(folder, write_definition(folder, **lines), mode=mode)
    return str(caught.value).replace(str(folder), "FOLDER")


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        (
            "2024-03-01",
            "2024-03-01",
            "cannot backfill 2024-03-01T00:00Z to 2024-03-01T00:00Z: the range is empty",
        ),
        (
            "2024-03-02",
            "2024-03-01",
            "cannot backfill 2024-03-02T00:00Z to 2024-03-01T00:00Z: `since` is after `until`",
        ),
        (
            "2024-03-01T05:00Z",
            "2024-03-02",
            "since 2024-03-01T05:00Z is not a boundary of UTC days, the unit in which ranges are replaced (1d)",
        ),
        (
            "2024-03-01",
            "2024-03-01T00:00-05:00",
            "until 2024-03-01T05:00Z is not a boundary of UTC days, the unit in which ranges are replaced (1d)",
        ),
    ],
)
def test_a_range_is_whole_days_of_utc_in_their_order(tmp_path: Path, since: str, until: str, message: str) -> None:
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY)

    with pytest.raises((SpecError, PlanError)) as caught:
        planned(tmp_path, write_definition(tmp_path), since, until)

    assert str(caught.value).splitlines()[0] == message
    assert not (tmp_path / "home" / "runs").exists()


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, PlanError) == ("no file or folder at FOLDER/data (FOLDER/clicks.toml, source.path)")


def test_a_folder_without_files_is_named_with_what_is_there_instead(tmp_path: Path) -> None:
    (tmp_path / "data" / "day=2024-03-01").mkdir(parents=True)
    (tmp_path / "data" / "_SUCCESS").touch()
    (tmp_path / "data" / ".part-0.parquet.crc").touch()
    (tmp_path / "data" / "day=2024-03-01" / "part-00000").touch()

    assert refusal(tmp_path, PlanError) == (
        "no Parquet files under FOLDER/data (FOLDER/clicks.toml, source.path)"
        "\n  2 files with a name that begins with _ or .: FOLDER/data/.part-0.parquet.crc, FOLDER/data/_SUCCESS"
        "\n  1 file with another suffix than .parquet, .parq, .pq: FOLDER/data/day=2024-03-01/part-00000"
    )


def test_a_column_that_no_file_has_is_named_with_those_there_are(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY)

    assert refusal(tmp_path, SpecError, event_time='"at"', clicks='"sum(hits)"') == (
        "2 problems in FOLDER/clicks.toml"
        "\n  source.event_time names 'at', which is not a column"
        "\n  aggregates.clicks names 'hits', which is not a column, in 'sum(hits)'"
        "\n\nhint: the source has happened_at, arrived_at, origin, seq, page"
    )


def test_categories_of_pandas_are_the_text_they_stand_for(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY, {**COLUMNS, "page": pa.dictionary(pa.int8(), pa.string())})

    plan = planned(tmp_path, write_definition(tmp_path))

    assert [column[:2] for column in plan.tables[""].columns][2] == ("page", "string")


def test_a_suite_that_is_not_there_is_named_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTREAM_EXPECTATIONS", str(tmp_path / "expectations"))
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations" / "lenient.json").touch()
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY)
    file = write_definition(tmp_path, CLICKS + '\n[quality]\nsuite = "window_audits"\n')

    with pytest.raises(SpecError) as caught:
        planned(tmp_path, file)

    message = str(caught.value)
    assert message.startswith(f"no suite 'window_audits' in {tmp_path}/expectations or ")
    assert {"lenient", "window_audit"} <= {*message.partition("which has: ")[2].split(", ")}


def test_a_replay_needs_the_time_of_arrival(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY)
    file = write_definition(tmp_path, CLICKS.replace('arrival_time = "arrived_at"\n', ""))

    assert planned(tmp_path, file, mode=Mode.RECOMPUTE).arrival_order is ArrivalOrder.UNKNOWN
    with pytest.raises(PlanError) as caught:
        planned(tmp_path, file, mode=Mode.REPLAY)
    assert str(caught.value) == (
        f"cannot replay clicks: source.arrival_time is missing, so the arrival order is unknown ({file})\n\n"
        "hint: use the mode recompute, or set source.arrival_time to the column with the arrival time"
    )


def test_a_replay_needs_to_know_when_the_stream_began_and_ended(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY)

    assert refusal(tmp_path, PlanError, mode="replay", arrival_time='"page"') == (
        "cannot replay clicks: the input files have no arrival times (FOLDER/clicks.toml)"
        "\n  source.arrival_time is 'page'"
        "\n\nhint: it must be a timestamp column whose Parquet footers have min and max"
    )


def test_a_stream_begins_and_ends_with_its_first_and_last_arrival_unless_its_clock_is_known(
    tmp_path: Path,
) -> None:
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY)
    write_clicks(tmp_path / "data/b.parquet", [(at("2 00:00"), at("2 00:07"), "A", 2, "home")])
    write_clicks(tmp_path / "data/empty.parquet", [])

    plain = planned(tmp_path, write_definition(tmp_path), mode=Mode.REPLAY)
    with_clock_start = planned(
        tmp_path, write_definition(tmp_path, delay='"10m"\nclock_start = "2024-03-01"'), mode=Mode.REPLAY
    )

    assert [instant_text(plain.clock_start_ms), instant_text(plain.clock_end_ms)] == [
        "2024-03-01T05:01Z",
        "2024-03-02T00:07Z",
    ]
    assert [instant_text(with_clock_start.clock_start_ms), instant_text(with_clock_start.clock_end_ms)] == [
        "2024-03-01T00:00Z",
        "2024-03-02T00:07Z",
    ]


@pytest.mark.parametrize(
    ("left_out", "arrival_order"),
    [
        ("", ArrivalOrder.RECORDED),
        ('sequence = "seq"\n', ArrivalOrder.TIES_BROKEN),
        ('partition = "origin"\n', ArrivalOrder.TIES_BROKEN),
        ('arrival_time = "arrived_at"\n', ArrivalOrder.UNKNOWN),
    ],
)
def test_a_plan_records_how_arrival_order_is_determined(
    tmp_path: Path, left_out: str, arrival_order: ArrivalOrder
) -> None:
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY)

    plan = planned(tmp_path, write_definition(tmp_path, CLICKS.replace(left_out, "") if left_out else CLICKS))

    assert plan.arrival_order is arrival_order


@dataclass(frozen=True)
class Days:
    """Files `1` to `4`, each with the events of one day of March, and two without bounds in their footers."""

    folder: Path

    def plan(self, window: str, chunk: str, until: str = "2024-03-04") -> Plan:
        """Plan the first three days by default."""
        text = CLICKS.replace('kind = "tumbling"\nsize = "1h"\n', window + "\n")
        file = write_definition(self.folder, text + f'\n[backfill]\nchunk = "{chunk}"\n')
        return planned(self.folder, file, "2024-03-01", until)

    def chunks(self, window: str, chunk: str, until: str = "2024-03-04") -> list[tuple[str, str, str, str]]:
        """Return the days of each chunk, the end of its reach, and its files."""
        plan = self.plan(window, chunk, until)
        names = [Path(each.path).stem for each in plan.inputs]
        return [
            (
                each.chunk_id,
                f"{day(each.start_ms)}-{day(each.end_ms)}",
                instant_text(each.halo_end_ms)[8:16],
                " ".join(names[number] for number in each.files),
            )
            for each in plan.chunks
        ]


def day(value_ms: int) -> str:
    return instant_text(value_ms)[8:10]


@pytest.fixture
def days(tmp_path: Path) -> Days:
    for number in range(1, 5):
        rows = [(at(f"{number} {hour:02}:00"), at(f"{number} 23:59"), "A", hour, "home") for hour in range(24)]
        write_clicks(tmp_path / f"data/{number}.parquet", rows)
    write_clicks(tmp_path / "data/empty.parquet", [])
    table = pa.table(
        {name: pa.array([value], COLUMNS[name]) for name, value in zip(COLUMNS, ONE_DAY[0], strict=True)}
    )
    pq.write_table(table, tmp_path / "data/unknown.parquet", write_statistics=False)
    return Days(tmp_path)


TUMBLING = 'kind = "tumbling"\nsize = "1h"'


def test_a_range_is_cut_into_chunks_of_which_the_last_may_be_shorter(days: Days) -> None:
    assert days.chunks(TUMBLING, "2d") == [
        ("0000", "01-03", "03T00:00", "1 2 unknown"),
        ("0001", "03-04", "04T00:00", "3 unknown"),
    ]


@pytest.mark.parametrize(
    ("window", "read_until", "files"),
    [
        (TUMBLING, "02T00:00", "1 unknown"),
        ('kind = "tumbling"\nsize = "1h"\noffset = "15m"', "02T00:15", "1 2 unknown"),
        ('kind = "tumbling"\nsize = "1h"\noffset = "-15m"', "02T00:45", "1 2 unknown"),
        ('kind = "sliding"\nsize = "3h"\nslide = "1h"', "02T02:00", "1 2 unknown"),
        ('kind = "sliding"\nsize = "30h"\nslide = "6h"', "03T00:00", "1 2 unknown"),
        ('kind = "sliding"\nsize = "36h"\nslide = "6h"', "03T06:00", "1 2 3 unknown"),
        ('kind = "sliding"\nsize = "10m"\nslide = "30m"', "02T00:00", "1 unknown"),
    ],
)
def test_a_chunk_reads_on_until_its_last_window_ends(days: Days, window: str, read_until: str, files: str) -> None:
    assert days.chunks(window, "1d")[0] == ("0000", "01-02", read_until, files)


def test_a_chunk_without_events_reads_only_files_with_unknown_times(days: Days) -> None:
    assert days.chunks(TUMBLING, "1d", until="2024-03-06")[4] == ("0004", "05-06", "06T00:00", "unknown")


def test_a_chunk_expects_the_events_that_its_files_spread_over_their_time(days: Days) -> None:
    expected = [each.expected_events for each in days.plan(TUMBLING, "1d").chunks]

    # 24 events in each day's file, and one that may be anywhere.
    assert expected == [25, 25, 25]


def test_a_plan_describes_its_files_by_their_footers(days: Days) -> None:
    described = {Path(each.path).stem: each for each in days.plan(TUMBLING, "1d").inputs}

    first, empty, unknown = described["1"], described["empty"], described["unknown"]
    assert (first.rows, first.size_bytes) == (24, Path(first.path).stat().st_size)
    assert [instant_text(value_ms) for value_ms in (first.min_event_ms or 0, first.max_event_ms or 0)] == [
        "2024-03-01T00:00Z",
        "2024-03-01T23:00Z",
    ]
    assert (empty.rows, empty.min_event_ms, unknown.rows, unknown.min_event_ms) == (0, None, 1, None)


def test_a_file_of_one_instant_is_read_by_the_chunk_that_holds_it(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(at("2 00:00"), at("2 00:01"), "A", 0, "home")])

    plan = planned(tmp_path, write_definition(tmp_path), until="2024-03-04")

    assert [each.files for each in plan.chunks] == [(), (0,), ()]


def test_events_of_several_row_groups_are_bounded_by_all_that_have_any(tmp_path: Path) -> None:
    times = [at("2 05:00"), at("1 03:00"), None, at("3 07:00")]
    rows: list[Mapping[str, datetime | str | int | None]] = [
        dict(zip(COLUMNS, (time, time, "A", number, "home"), strict=True)) for number, time in enumerate(times)
    ]
    table = pa.Table.from_pylist(rows, pa.schema(list(COLUMNS.items())))
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data/a.parquet", row_group_size=1)

    (described,) = planned(tmp_path, write_definition(tmp_path)).inputs

    assert instant_text(described.min_event_ms or 0) == "2024-03-01T03:00Z"
    assert instant_text(described.max_event_ms or 0) == "2024-03-03T07:00Z"


def test_a_source_may_be_one_file_given_relative_to_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_clicks(tmp_path / "clicks.parquet", ONE_DAY, {**COLUMNS, "happened_at": INSTANT})
    monkeypatch.chdir(tmp_path)

    plan = planned(tmp_path, write_definition(tmp_path, path='"clicks.parquet"'))

    assert [each.path for each in plan.inputs] == [f"{tmp_path}/clicks.parquet"]


def test_planning_again_gives_the_same_run(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY)

    once, again = (planned(tmp_path, write_definition(tmp_path)) for _ in range(2))

    assert once == again
    assert Plan.read(once.folder.plan) == once


def test_a_plan_leaves_itself_and_nothing_in_the_lake(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", ONE_DAY)

    plan = planned(tmp_path, write_definition(tmp_path))

    home = plan.home.path
    *of_run, footers = sorted(str(file.relative_to(home)) for file in home.rglob("*") if file.is_file())
    assert footers.startswith("summaries/footers-clicks-")  # the cache of footers
    assert of_run == [f"runs/clicks/{plan.run_id}/{name}" for name in ("files_read.json", "plan.json", "run.json")]
