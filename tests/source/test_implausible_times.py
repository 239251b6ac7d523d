"""Times of another unit and placeholders are found in all records of a source, and true old times are not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.workflow.history import CLICKS, write_definition

from backstream.definition.loader import load_definition, resolve_paths
from backstream.eventtime.instants import epoch_ms
from backstream.runs.home import Home
from backstream.runs.input_files import ImplausibleTimes
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers
from backstream.source.implausible_times import find_implausible_times

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
IN_MARCH = [MARCH + timedelta(minutes=minute) for minute in range(200)]
REMEDY = "correct them in [source.derive], or leave them out by source.where"


def ms_of(times: Sequence[datetime]) -> list[int]:
    return [epoch_ms(at) for at in times]


def write_times(folder: Path, times_ms: Sequence[int], arrivals_ms: Sequence[int] = (), rows: int = 1_000) -> None:
    """Write `data/a.parquet` with these times in row groups of some rows; arrivals are equal by default."""
    instants = [pa.array(each, pa.timestamp("ms", "UTC")) for each in (times_ms, arrivals_ms or times_ms)]
    (folder / "data").mkdir(exist_ok=True)
    table = pa.table({"happened_at": instants[0], "arrived_at": instants[1]})
    pq.write_table(table, folder / "data/a.parquet", row_group_size=rows)


def find(folder: Path, text: str = CLICKS) -> list[ImplausibleTimes]:
    """Return the implausible times of the files in `data`."""
    home = Home(folder / "home")
    raw = load_definition(write_definition(folder, text))
    definition = resolve_paths(raw, home)
    footers = load_footers(list_source_files(definition.source, "here"), definition, home)
    return list(find_implausible_times(raw, definition.source.paths, footers.inputs, footers.times))


def sentences(folder: Path, text: str = CLICKS.replace('arrival_time = "arrived_at"\n', "")) -> list[str]:
    return [str(times).replace(str(folder), "") for times in find(folder, text)]


EVENT = "source.event_time of"
IN_FILE = "in /data/a.parquet"


@pytest.mark.parametrize(
    ("wrong_ms", "sentence"),
    [
        pytest.param(
            [1_709_251_200],
            f"{EVENT} 1 of 201 records is 1970-01-20T18:47:31.200Z, e.g., 1970-01-20T18:47:31.200Z {IN_FILE}:"
            f" with the unit s instead of ms it would be 2024-03-01T00:00Z; {REMEDY}",
            id="seconds",
        ),
        pytest.param(
            [1_709_251_200_000_000, 1_709_254_800_000_000],
            f"{EVENT} 2 of 202 records is in the year 56,134, e.g., 1709251200000000 ms {IN_FILE}:"
            f" with the unit us instead of ms it would be 2024-03-01T00:00Z; {REMEDY}",
            id="microseconds",
        ),
        pytest.param(
            [1_709_251],
            f"{EVENT} 1 of 201 records is 1970-01-01T00:28:29.251Z, e.g., 1970-01-01T00:28:29.251Z {IN_FILE}:"
            f" with the unit s instead of us it would be 2024-02-29T23:56:40Z; {REMEDY}",
            id="seconds as microseconds",
        ),
        pytest.param(
            [0, -1, 0],
            f"{EVENT} 3 of 203 records is from 1969-12-31T23:59:59.999Z to 1970-01-01T00:00Z,"
            f" e.g., 1969-12-31T23:59:59.999Z {IN_FILE}: 0 / -1 is a placeholder for no time; {REMEDY}",
            id="0 and -1",
        ),
        pytest.param(
            ms_of([datetime(1900, 1, 1, 5, tzinfo=UTC)]),
            f"{EVENT} 1 of 201 records is 1900-01-01T05:00Z, e.g., 1900-01-01T05:00Z {IN_FILE}:"
            f" 1900-01-01 is a placeholder for no time; {REMEDY}",
            id="midnight of 1900 in New York",
        ),
        pytest.param(
            ms_of([datetime(1, 1, 1, tzinfo=UTC)]),
            f"{EVENT} 1 of 201 records is 0001-01-01T00:00Z, e.g., 0001-01-01T00:00Z {IN_FILE}:"
            f" 0001-01-01 is a placeholder for no time; {REMEDY}",
            id="the year 1",
        ),
        pytest.param(
            ms_of([datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]),
            f"{EVENT} 1 of 201 records is 9999-12-31T23:59:59Z, e.g., 9999-12-31T23:59:59Z {IN_FILE}:"
            f" 9999-12-31 is a placeholder for no time; {REMEDY}",
            id="the last day",
        ),
        pytest.param(
            [400_000_000_000_000],
            f"{EVENT} 1 of 201 records is in the year 14,645, e.g., 400000000000000 ms {IN_FILE}:"
            f" this is after the year 9999; {REMEDY}",
            id="no unit fits",
        ),
    ],
)
def test_a_time_that_is_far_from_all_others_is_named_with_its_reason(
    tmp_path: Path, wrong_ms: list[int], sentence: str
) -> None:
    write_times(tmp_path, [*ms_of(IN_MARCH), *wrong_ms])

    assert sentences(tmp_path) == [sentence]
    assert sentences(tmp_path) == [sentence]  # from the summary of the footers


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([*IN_MARCH, datetime(2017, 9, 28, tzinfo=UTC)], id="2017"),
        pytest.param([*IN_MARCH, *(datetime(year, 6, 1, tzinfo=UTC) for year in (1985, 1971))], id="old records"),
        pytest.param([datetime(1950 + year, 1, 1, tzinfo=UTC) for year in range(70)], id="weather since 1950"),
        pytest.param([datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(300)], id="1970"),
        pytest.param(
            [datetime(1969, 12, 31, tzinfo=UTC) + timedelta(hours=hour) for hour in range(99)], id="days"
        ),
    ],
)
def test_true_old_times_are_plausible(tmp_path: Path, times: list[datetime]) -> None:
    write_times(tmp_path, ms_of(times))

    assert find(tmp_path) == []


def test_a_source_with_only_wrong_times_has_no_others(tmp_path: Path) -> None:
    write_times(tmp_path, [at_ms // 1_000 for at_ms in ms_of(IN_MARCH)])

    (sentence,) = sentences(tmp_path)
    assert sentence == (
        f"{EVENT} all 200 records is from 1970-01-20T18:47:31.200Z to 1970-01-20T18:47:43.140Z,"
        f" e.g., 1970-01-20T18:47:31.200Z {IN_FILE}: with the unit s instead of ms it would be 2024-03-01T00:00Z;"
        f" {REMEDY}"
    )


def test_a_wrong_arrival_time_is_named_like_a_wrong_event_time(tmp_path: Path) -> None:
    times_ms = ms_of(IN_MARCH)
    write_times(tmp_path, times_ms, [times_ms[0] // 1_000, *times_ms[1:]])

    (found,) = find(tmp_path)

    assert (found.time, found.records, found.total, found.unit) == ("source.arrival_time", 1, 200, "s")


def test_numbers_and_texts_are_read_like_instants(tmp_path: Path) -> None:
    times_ms = [*ms_of(IN_MARCH), 1_709_251_200]
    texts = [(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).isoformat() for at in times_ms]
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"number": times_ms, "text": texts}), tmp_path / "data/a.parquet")
    without_arrival = CLICKS.replace('arrival_time = "arrived_at"\n', "")

    for column, example in (
        ("timestamp_millis(number)", "1709251200"),
        ("text", "1970-01-20T18:47:31.200000+00:00"),
    ):
        (found,) = find(tmp_path, without_arrival.replace('"happened_at"', f'"{column}"'))
        assert (found.records, found.example, found.unit) == (1, example, "s")
        assert found.reason.startswith("with the unit s instead of ms it would be 2024-03-01T00:00Z; ")


def test_only_row_groups_with_far_bounds_are_read(tmp_path: Path) -> None:
    write_times(tmp_path, [*ms_of(IN_MARCH), *[1_709_251_200] * 200], rows=200)
    file = tmp_path / "data/a.parquet"
    chunk = pq.read_metadata(file).row_group(0).column(0)
    content = bytearray(file.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)  # it cannot be read
    file.write_bytes(content)

    (found,) = find(tmp_path, CLICKS.replace('arrival_time = "arrived_at"\n', ""))

    assert (found.records, found.total) == (200, 400)


def test_files_outside_of_the_valid_times_are_counted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_times(tmp_path, ms_of([datetime(2150, 1, 1, tzinfo=UTC)]))
    (tmp_path / "data/a.parquet").rename(tmp_path / "data/b.parquet")
    write_times(tmp_path, ms_of(IN_MARCH))

    (sentence,) = sentences(tmp_path)
    assert sentence == (
        f"{EVENT} 1 of 201 records is 2150-01-01T00:00Z, e.g., 2150-01-01T00:00Z in /data/b.parquet:"
        " source.event_time_range does not contain these times"
    )
