"""Test the detection of repeated positions in sources without deduplication."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.workflow.history import CLICKS, COLUMNS, at, planned, write_clicks, write_definition

from backstream.definition.loader import parse_definition
from backstream.quality.evidence import RepeatedPosition, RepeatedPositions
from backstream.workflow.inputs import repeated_positions
from backstream.workflow.inputs.repeated_positions import find_repeated_positions

WITHOUT_DEDUPLICATION = CLICKS.replace('deduplicate_on = ["origin", "seq"]\n', "")
Row = tuple[datetime, datetime, str | None, int | None, str]


def clicks(origin: str, *numbers: int, day: int = 1) -> list[Row]:
    """Return one click per minute with these sequence numbers."""
    return [
        (at(f"{day} 05:00") + timedelta(minutes=place), at(f"{day} 06:00"), origin, number, "home")
        for place, number in enumerate(numbers)
    ]


def find_repeated(folder: Path, text: str = WITHOUT_DEDUPLICATION, until: str = "2024-03-02") -> RepeatedPositions:
    plan = planned(folder, write_definition(folder, text), until=until)
    return find_repeated_positions(plan, parse_definition(plan.definition, "plan"))


def test_numbers_that_rise_in_each_partition_are_not_repeated(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [*clicks("A", 1, 2, 5), *clicks("B", 1, 2)])
    write_clicks(tmp_path / "data/b.parquet", [*clicks("A", 6, 9), *clicks("B", 3)])

    assert find_repeated(tmp_path) == RepeatedPositions()


def test_files_with_overlapping_but_distinct_numbers_have_no_repetition(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", clicks("A", 1, 5, 3))
    write_clicks(tmp_path / "data/b.parquet", clicks("A", 4, 2, 6))

    assert find_repeated(tmp_path) == RepeatedPositions()


def test_a_repeated_record_is_reported_within_a_file_and_across_files(tmp_path: Path) -> None:
    twice = clicks("A", 1, 2, 3)
    write_clicks(tmp_path / "data/a.parquet", [*twice, twice[1], *clicks("B", 7)])
    write_clicks(tmp_path / "data/b.parquet", [*twice[2:], *clicks("B", 7)])

    repeated = find_repeated(tmp_path)

    assert repeated == RepeatedPositions(
        3,
        (
            RepeatedPosition("A", 2, 2),
            RepeatedPosition("A", 3, 2),
            RepeatedPosition("B", 7, 2),
        ),
    )
    assert str(repeated) == "3 positions occur more than once (A 2 2 times, A 3 2 times, B 7 2 times)"


def test_all_repeated_records_are_counted_and_ten_are_listed(tmp_path: Path) -> None:
    for name in "ab":
        write_clicks(tmp_path / f"data/{name}.parquet", clicks("A", *range(100)))

    assert find_repeated(tmp_path) == RepeatedPositions(
        100, tuple(RepeatedPosition("A", number, 2) for number in range(10))
    )


def test_many_positions_are_compared_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_positions, "_MAX_NUMBERS", 30)
    for name in "ab":
        write_clicks(tmp_path / f"data/{name}.parquet", clicks("A", *range(100)))

    assert find_repeated(tmp_path) == RepeatedPositions(
        100, tuple(RepeatedPosition("A", number, 2) for number in range(10))
    )


def test_a_number_of_an_earlier_day_is_no_repetition(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [*clicks("A", 1, 2), *clicks("A", 1, 2, day=2)])

    assert find_repeated(tmp_path, until="2024-03-03") == RepeatedPositions()


def test_a_repetition_outside_the_range_is_not_reported(tmp_path: Path) -> None:
    twice = clicks("A", 1, day=2)
    write_clicks(tmp_path / "data/a.parquet", [*clicks("A", 0), *twice, *twice])

    assert find_repeated(tmp_path) == RepeatedPositions()
    assert find_repeated(tmp_path, until="2024-03-03") == RepeatedPositions(1, (RepeatedPosition("A", 1, 2),))


def overwrite_times(file: Path) -> None:
    """Overwrite the event times of a file with zeros; its footer and the other columns stay."""
    column = pq.read_metadata(file).row_group(0).column(list(COLUMNS).index("happened_at"))
    assert column.path_in_schema == "happened_at"
    start = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)))
    content = file.read_bytes()
    zeros = bytes(column.total_compressed_size)
    file.write_bytes(content[:start] + zeros + content[start + len(zeros) :])


def test_only_the_times_of_a_file_that_reaches_beyond_the_range_are_read(tmp_path: Path) -> None:
    last = (at("2 00:00") - timedelta(milliseconds=1), at("2 06:00"), "A", 9, "home")
    write_clicks(tmp_path / "data/a.parquet", [(at("1 00:00"), *clicks("A", 1)[0][1:]), last])
    overwrite_times(tmp_path / "data/a.parquet")

    assert find_repeated(tmp_path) == RepeatedPositions()

    for outside in (at("2 00:00"), at("1 00:00") - timedelta(milliseconds=1)):
        write_clicks(tmp_path / "data/a.parquet", [*clicks("A", 1), (outside, *last[1:])])
        overwrite_times(tmp_path / "data/a.parquet")
        with pytest.raises(OSError, match=r"happened_at|header|stream"):
            find_repeated(tmp_path)


def test_with_deduplication_no_positions_are_compared(tmp_path: Path) -> None:
    twice = clicks("A", 1)
    write_clicks(tmp_path / "data/a.parquet", [*twice, *twice])

    assert find_repeated(tmp_path, CLICKS) == RepeatedPositions()


def test_numbers_may_be_text_and_invalid_ones_are_left_to_quarantine(tmp_path: Path) -> None:
    texts = zip(clicks("A", 0, 1, 2), ("7", "7", "x"), strict=True)
    rows: list[tuple[Any, ...]] = [(*row[:3], text, row[4]) for row, text in texts]
    rows.append((*rows[0][:3], None, "home"))
    same = [rows[0], (rows[0][0], *rows[1][1:]), *rows[2:]]
    write_clicks(tmp_path / "data/a.parquet", same, {**COLUMNS, "seq": pa.string()})

    assert find_repeated(tmp_path) == RepeatedPositions(1, (RepeatedPosition("A", 7, 2),))


def test_a_source_without_partitions_has_one(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [*clicks("A", 1, 2), *clicks("B", 9, 2)])

    repeated = find_repeated(tmp_path, WITHOUT_DEDUPLICATION.replace('partition = "origin"\n', ""))

    assert (repeated.positions, [each.sequence for each in repeated.examples]) == (1, [2])


@pytest.mark.parametrize(("missing", "repeated"), [("origin", [2]), ("seq", [])])
def test_a_column_may_be_missing_in_a_file(tmp_path: Path, missing: str, repeated: list[int]) -> None:
    write_clicks(tmp_path / "data/a.parquet", clicks("A", 1, 2))
    write_clicks(tmp_path / "data/b.parquet", [*clicks("A", 2), *clicks("A", 2)])
    path = tmp_path / "data/b.parquet"
    pq.write_table(pq.read_table(path).drop_columns([missing]), path)

    found = find_repeated(tmp_path)

    assert [each.sequence for each in found.examples] == repeated
