from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import ContractError, SpecError
from backstream.eventtime.instants import HOUR_MS, instant_ms, instant_text
from backstream.eventtime.intervals import LocalDays
from backstream.quality.audit_frame import (
    PARTITION_COLUMNS,
    RUN_COLUMNS,
    WINDOW_COLUMNS,
    audit_frame,
    partitions_frame,
    run_frame,
)
from backstream.quality.window_rows import list_windows
from backstream.runs.manifest import Manifest
from backstream.runs.plan import ArrivalOrder, Chunk, Mode, Plan


def definition(window: dict[str, str] | None = None, **quality: Any) -> Definition:
    return parse_definition(
        {
            "name": "clicks",
            "source": {"path": "data", "event_time": "at", "partition": "gate"},
            "window": window or {"kind": "tumbling", "size": "1h"},
            "aggregates": {"clicks": "count(*)"},
            "quality": quality,
        },
        "test",
    )


def plan(since: str, until: str) -> Plan:
    since_ms, until_ms = instant_ms(since, "since"), instant_ms(until, "until")
    return Plan(
        dataset="clicks",
        definition={},
        definition_hash="d",
        definition_path="clicks.toml",
        planned_by_version="1",
        mode=Mode.REPLAY,
        arrival_order=ArrivalOrder.RECORDED,
        since_ms=since_ms,
        until_ms=until_ms,
        clock_start_ms=since_ms,
        clock_end_ms=until_ms,
        home_location="home",
        inputs=(),
        chunks=(Chunk("0000", since_ms, until_ms, until_ms, (), 10),),
    )


def metrics(*rows: tuple[str, str, int, int, int]) -> pd.DataFrame:
    """Return metrics from rows: source partition, start of an hour of 2026-03-01, on time, late, dropped."""
    starts = [instant_ms(f"2026-03-01T{start}Z", "start") for _, start, *_ in rows]
    return pd.DataFrame(
        {
            "window_start": pd.to_datetime(starts, unit="ms", utc=True),
            "window_end": pd.to_datetime([start + HOUR_MS for start in starts], unit="ms", utc=True),
            "source_partition": [row[0] for row in rows],
            "events": [sum(row[2:]) for row in rows],
            "on_time": [row[2] for row in rows],
            "late": [row[3] for row in rows],
            "dropped": [row[4] for row in rows],
            "expired": 0,
        }
    )


def timetable(folder: Path, *rows: tuple[str, str]) -> dict[str, str]:
    """Write a timetable with one event per source partition and time of 2026-03-01."""
    times = [datetime.fromisoformat(f"2026-03-01T{at}").replace(tzinfo=UTC) for _, at in rows]
    table = pa.table({"gate": [gate for gate, _ in rows], "due": pa.array(times, pa.timestamp("us", "UTC"))})
    pq.write_table(table, folder / "timetable.parquet")
    return {"path": str(folder), "event_time": "due", "partition": "gate"}


def cells(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    listed = list_windows(frame)
    shown = listed.assign(window_start=listed["window_start"].dt.strftime("%H:%M"))
    return list(shown[["source_partition", "window_start", *columns]].itertuples(index=False, name=None))


TWO_HOURS = plan("2026-03-01T00:00Z", "2026-03-01T02:00Z")


def test_every_window_of_each_named_partition_is_expected_even_without_events() -> None:
    frame = audit_frame(TWO_HOURS, definition(expected_partitions=["a", "b"]), metrics())

    assert cells(frame, "is_expected", "is_present", "completeness") == [
        ("a", "00:00", True, False, 0.0),
        ("b", "00:00", True, False, 0.0),
        ("a", "01:00", True, False, 0.0),
        ("b", "01:00", True, False, 0.0),
    ]


def test_every_window_of_a_source_without_partitions_is_expected_even_without_events() -> None:
    content = definition().model_dump(mode="json")
    whole = parse_definition(content | {"source": {"path": "data", "event_time": "at"}}, "test")

    frame = audit_frame(TWO_HOURS, whole, metrics())

    assert cells(frame, "is_expected", "is_present") == [
        ("all", "00:00", True, False),
        ("all", "01:00", True, False),
    ]


def test_observed_partitions_are_expected_in_every_window() -> None:
    frame = audit_frame(TWO_HOURS, definition(expected_partitions="observed"), metrics(("a", "01:00", 3, 0, 0)))

    assert cells(frame, "is_expected", "is_present", "events", "copies") == [
        ("a", "00:00", True, False, 0, 0),
        ("a", "01:00", True, True, 3, 1),
    ]


def test_a_timetable_defines_the_grid_and_the_expected_events_of_each_window(tmp_path: Path) -> None:
    expected = timetable(tmp_path, ("a", "00:10"), ("a", "00:50"), ("b", "01:00"), ("b", "02:00"))

    frame = audit_frame(TWO_HOURS, definition(expected=expected), metrics(("a", "00:00", 1, 0, 0)))

    assert cells(frame, "expected_events", "events", "completeness", "is_count_known") == [
        ("a", "00:00", 2, 1, 0.5, True),
        ("b", "01:00", 1, 0, 0.0, True),
    ]


def test_a_window_that_the_timetable_does_not_know_is_not_expected_and_not_incomplete(tmp_path: Path) -> None:
    expected = timetable(tmp_path, ("a", "00:10"))
    came = metrics(("a", "00:00", 4, 0, 0), ("a", "01:00", 2, 0, 0))

    frame = audit_frame(TWO_HOURS, definition(expected=expected), came)

    assert cells(frame, "is_expected", "surplus", "completeness") == [
        ("a", "00:00", True, 3, 4.0),
        ("a", "01:00", False, 0, 1.0),
    ]


def test_named_partitions_narrow_the_timetable(tmp_path: Path) -> None:
    expected = timetable(tmp_path, ("a", "00:10"), ("b", "00:10"))

    frame = audit_frame(TWO_HOURS, definition(expected=expected, expected_partitions=["b"]), metrics())

    assert cells(frame) == [("b", "00:00")]


def test_an_expected_event_counts_in_each_of_its_sliding_windows(tmp_path: Path) -> None:
    #  window   [00:00..01:00) [00:30..01:30) [01:00..02:00) [01:30..02:30)
    #  00:40        x              x
    #  02:10                                                     x      (its other window starts too late)
    sliding = {"kind": "sliding", "size": "1h", "slide": "30m"}
    expected = timetable(tmp_path, ("a", "00:40"), ("a", "02:10"))

    frame = audit_frame(TWO_HOURS, definition(sliding, expected=expected), metrics())

    assert cells(frame, "expected_events") == [("a", "00:00", 1), ("a", "00:30", 1), ("a", "01:30", 1)]


def test_windows_with_an_offset_start_at_the_first_of_their_grid_in_the_range() -> None:
    window = {"kind": "tumbling", "size": "1h", "offset": "15m"}

    frame = audit_frame(TWO_HOURS, definition(window, expected_partitions=["a"]), metrics())

    assert cells(frame, "is_aligned") == [("a", "00:15", True), ("a", "01:15", True)]


def test_several_rows_of_one_cell_are_summed_and_counted() -> None:
    came = metrics(("a", "00:00", 3, 1, 0), ("a", "00:00", 2, 0, 0))

    frame = audit_frame(TWO_HOURS, definition(), came)

    assert cells(frame, "copies", "events", "on_time", "late")[0] == ("a", "00:00", 2, 6, 5, 1)


def test_a_window_outside_the_range_or_off_the_grid_is_marked() -> None:
    came = metrics(("a", "00:00", 1, 0, 0), ("a", "01:30", 1, 0, 0), ("a", "03:00", 1, 0, 0))

    frame = audit_frame(TWO_HOURS, definition(), came)

    assert cells(frame, "in_range", "is_aligned") == [
        ("a", "00:00", True, True),
        ("a", "01:00", True, True),
        ("a", "01:30", True, False),
        ("a", "03:00", False, True),
    ]


def test_the_late_ratio_counts_late_and_dropped_and_is_zero_without_events() -> None:
    frame = audit_frame(TWO_HOURS, definition(), metrics(("a", "00:00", 6, 1, 3)))

    assert cells(frame, "late_ratio", "unaccounted") == [("a", "00:00", 0.4, 0), ("a", "01:00", 0.0, 0)]


def test_no_cell_of_any_frame_is_null() -> None:
    windows = audit_frame(TWO_HOURS, definition(expected_partitions=["a", "b"]), metrics(("c", "05:00", 1, 0, 0)))
    frames = [windows, partitions_frame(windows, [], definition()), run_frame(TWO_HOURS, windows, [])]

    assert [int(frame.isna().sum().sum()) for frame in frames] == [0, 0, 0]
    assert [list(frame.columns) for frame in frames] == [WINDOW_COLUMNS, PARTITION_COLUMNS, RUN_COLUMNS]


def test_an_empty_run_has_no_window_and_one_row() -> None:
    windows = audit_frame(TWO_HOURS, definition(), metrics())

    assert list(windows.columns) == WINDOW_COLUMNS
    assert len(windows) == 0
    assert run_frame(TWO_HOURS, windows, []).to_dict("records") == [
        {
            "windows": 0,
            "windows_expected": 0,
            "windows_missing": 0,
            "missing_ratio": 0.0,
            "events": 0,
            "late_ratio": 0.0,
            "unbanded_late_ratio": 0.0,
            "dropped_ratio": 0.0,
            "records_read": 0,
            "unaccounted": 0,
            "is_any_readable": True,
            "quarantined_ratio": 0.0,
            "inexact_ratio": 0.0,
            "duplicate_ratio": 0.0,
            "undecided_ratio": 0.0,
            "without_id_ratio": 0.0,
            "records_with_empty_id": 0,
            "records_without_key": 0,
            "repeated_positions": 0,
            "unmatched_rows": 0,
            "rows": 0,
            "replaced_rows": 0,
            "rows_ratio": 1.0,
            "chunks_missing": 1,
            "records_per_day": 0.0,
            "volume_score": 0.0,
            "files_skipped": 0,
            "files_removed": 0,
            "files_equal": 0,
            "records_misplaced": 0,
            "implausible_ratio": 0.0,
        }
    ]


def manifest(events_read: int, **fates: dict[str, int]) -> Manifest:
    return Manifest("run", "0000", "1", events_read, fates, {})


def test_a_source_partition_is_matched_against_the_fates_of_its_records() -> None:
    windows = audit_frame(TWO_HOURS, definition(), metrics(("a", "00:00", 6, 1, 3)))
    read = manifest(14, a={"on_time": 6, "late": 1, "dropped": 5, "duplicate": 2})

    row = partitions_frame(windows, [read], definition()).to_dict("records")[0]

    assert (row["records"], row["unmatched"], row["windows_missing"], row["missing_ratio"]) == (12, 2, 1, 0.5)


def test_records_of_sliding_windows_are_not_matched_because_one_counts_several_times() -> None:
    sliding = definition({"kind": "sliding", "size": "1h", "slide": "30m"})
    windows = audit_frame(TWO_HOURS, sliding, metrics(("a", "00:00", 6, 0, 0)))

    frame = partitions_frame(windows, [manifest(3, a={"on_time": 3})], sliding)

    assert list(frame["unmatched"]) == [0]


def test_a_record_without_a_fate_is_unaccounted_and_does_not_cancel_out_with_one_that_has_two() -> None:
    windows = audit_frame(TWO_HOURS, definition(), metrics())
    read = [manifest(5, a={"on_time": 4}), manifest(5, a={"on_time": 4, "halo": 2})]

    assert run_frame(TWO_HOURS, windows, read)["unaccounted"].tolist() == [2]


def test_metrics_without_a_column_break_their_contract() -> None:
    with pytest.raises(ContractError) as raised:
        audit_frame(TWO_HOURS, definition(), metrics().drop(columns=["late", "expired"]))

    assert str(raised.value) == (
        "window metrics break their contract:\n  late: got no such column\n  expired: got no such column"
    )


def test_a_timetable_that_is_not_there_is_named(tmp_path: Path) -> None:
    expected = {"path": str(tmp_path / "none"), "event_time": "due"}

    with pytest.raises(SpecError) as raised:
        audit_frame(TWO_HOURS, definition(expected=expected), metrics())

    assert str(raised.value) == (
        f"no file of expected events at {tmp_path}/none (quality.expected.path of clicks)"
    )


def test_a_timetable_without_the_named_columns_breaks_its_contract(tmp_path: Path) -> None:
    pq.write_table(pa.table({"due": ["noon"]}), tmp_path / "timetable.parquet")
    expected = {"path": str(tmp_path), "event_time": "due", "partition": "gate"}

    with pytest.raises(ContractError) as raised:
        audit_frame(TWO_HOURS, definition(expected=expected), metrics())

    assert str(raised.value) == (
        f"expected events break their contract ({tmp_path}, quality.expected.path of clicks):\n"
        "  gate: got no such column\n"
        "  due: expected timestamp, got string"
    )


def test_a_timetable_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "timetable.parquet").write_text("noon")
    expected = {"path": str(tmp_path), "event_time": "due"}

    with pytest.raises(SpecError) as raised:
        audit_frame(TWO_HOURS, definition(expected=expected), metrics())

    assert str(raised.value) == (f"expected events are not Parquet ({tmp_path}, quality.expected.path of clicks)")


def due(day_part: str, kind: pa.DataType) -> pa.Array:
    return pa.array([datetime.fromisoformat(f"2026-03-01T{day_part}+00:00")], kind)


def test_files_of_a_timetable_may_differ_and_others_may_lie_beside_them(tmp_path: Path) -> None:
    tables = [
        {"due": due("00:10", pa.timestamp("ms", "UTC")), "gate": pa.array([1], pa.int32()), "note": pa.array([1])},
        {"note": pa.array(["x"]), "gate": pa.array([1 << 40]), "due": due("01:10", pa.timestamp("us", "UTC"))},
    ]
    for number, columns in enumerate(tables):
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    (tmp_path / "README.txt").write_text("noon")
    (tmp_path / "_SUCCESS").touch()
    expected = {"path": str(tmp_path), "event_time": "due", "partition": "gate"}

    frame = audit_frame(TWO_HOURS, definition(expected=expected), metrics())

    assert cells(frame, "expected_events") == [("1", "00:00", 1), (str(1 << 40), "01:00", 1)]


def test_a_timetable_may_name_partitions_by_its_folders(tmp_path: Path) -> None:
    for gate in ("a", "b"):
        (tmp_path / f"gate={gate}").mkdir()
        pq.write_table(pa.table({"due": due("00:10", pa.timestamp("ms", "UTC"))}), tmp_path / f"gate={gate}/x.pq")
    expected = {"path": str(tmp_path), "event_time": "due", "partition": "gate"}

    frame = audit_frame(TWO_HOURS, definition(expected=expected), metrics())

    assert cells(frame, "expected_events") == [("a", "00:00", 1), ("b", "00:00", 1)]


def test_a_timetable_of_two_types_breaks_its_contract(tmp_path: Path) -> None:
    for name, kind in (("a", pa.int64()), ("b", pa.string())):
        table = {"due": due("00:10", pa.timestamp("ms", "UTC")), "gate": pa.array([1]).cast(kind)}
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    expected = {"path": str(tmp_path), "event_time": "due", "partition": "gate"}

    with pytest.raises(ContractError) as raised:
        audit_frame(TWO_HOURS, definition(expected=expected), metrics())

    assert str(raised.value) == (
        f"expected events break their contract ({tmp_path}, quality.expected.path of clicks):\n"
        "  Unable to merge: Field gate has incompatible types: int64 vs string"
    )


def test_a_timetable_without_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "README.txt").write_text("noon")
    expected = {"path": str(tmp_path), "event_time": "due"}

    with pytest.raises(SpecError) as raised:
        audit_frame(TWO_HOURS, definition(expected=expected), metrics())

    assert str(raised.value) == (
        f"no Parquet files of expected events ({tmp_path}, quality.expected.path of clicks)"
    )


def test_a_timetable_without_partitions_speaks_of_the_only_one_or_is_refused(tmp_path: Path) -> None:
    expected = timetable(tmp_path, ("a", "00:10")) | {"partition": None}

    assert cells(audit_frame(TWO_HOURS, definition(expected=expected, expected_partitions=["b"]), metrics())) == [
        ("b", "00:00")
    ]
    with pytest.raises(SpecError) as raised:
        audit_frame(TWO_HOURS, definition(expected=expected, expected_partitions=["b", "c"]), metrics())

    assert str(raised.value) == ("quality.expected.partition is missing, but clicks has 2 source partitions: b, c")


NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(("day", "hours"), [("2013-03-09", 24), ("2013-03-10", 23), ("2013-11-03", 25)])
def test_a_run_of_a_local_day_expects_the_windows_of_that_day(day: str, hours: int) -> None:
    following = date.fromisoformat(day) + timedelta(days=1)
    local_days = LocalDays.from_dates(day, following.isoformat(), NEW_YORK.key)
    since, until = (instant_text(at_ms) for at_ms in (local_days.utc_days.start_ms, local_days.utc_days.end_ms))

    frame = audit_frame(plan(since, until), definition(expected_partitions=["a"]), metrics().iloc[:0])

    frame = list_windows(frame)
    local = frame["window_start"].dt.tz_convert(NEW_YORK).dt.date == date.fromisoformat(day)
    assert local.sum() == hours
    assert frame[local]["is_expected"].all()


@pytest.mark.parametrize(("day", "hours"), [("2013-03-09", 24), ("2013-03-10", 23), ("2013-11-03", 25)])
def test_a_local_day_expects_as_many_hourly_windows_as_its_clock_has_hours(day: str, hours: int) -> None:
    since = datetime.fromisoformat(day).replace(tzinfo=NEW_YORK)
    until = since + timedelta(days=1)  # in local time

    frame = audit_frame(
        plan(since.isoformat(), until.isoformat()), definition(expected_partitions=["a"]), metrics().iloc[:0]
    )

    frame = list_windows(frame)
    assert len(frame) == hours
    assert frame["is_expected"].all()
    assert frame["window_start"].is_monotonic_increasing
    assert frame["window_start"].iloc[0] == since
    assert frame["window_end"].iloc[-1] == until
