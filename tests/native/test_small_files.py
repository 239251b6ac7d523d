from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backstream.native.small_files import columns_by_group, split_file
from backstream.storage.columns import load_columns

NAMES = ["key", "at", "records"]
BATCH_ROWS = 65_536
"""Arrow reads so many rows of a file at once."""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three files; the keys of the second one are all null."""
    keys = [pa.array(["a", "ä"]), pa.array([None], pa.string()), pa.array(["c"])]
    for number, column in enumerate(keys):
        at = pa.array([datetime(2024, 3, 1 + number, tzinfo=UTC)] * len(column), pa.timestamp("us", "UTC"))
        table = pa.table({"key": column, "at": at, "records": [number] * len(column), "more": column})
        pq.write_table(table, tmp_path / f"part-{number}.parquet")
    return [str(tmp_path / f"part-{number}.parquet") for number in range(3)]


def test_files_that_are_read_together_give_what_each_gives_alone(files: list[str]) -> None:
    found = columns_by_group([files[:2], files[2:]], NAMES)

    assert found is not None
    alone = [load_columns(path, NAMES) for path in files]
    assert [each.to_pylist() for each in found] == [
        pa.concat_tables(alone[:2]).to_pylist(),
        alone[2].to_pylist(),
    ]
    assert [each.schema.types for each in found] == [alone[0].schema.types] * 2


def test_a_group_keeps_its_place_when_another_has_no_rows(files: list[str]) -> None:
    pq.write_table(pq.read_table(files[0]).slice(0, 0), files[0])

    found = columns_by_group([[path] for path in files], NAMES)

    assert found is not None
    assert [each["records"].to_pylist() for each in found] == [[], [1], [2]]


def test_files_are_not_read_together_if_one_was_removed(files: list[str]) -> None:
    Path(files[1]).unlink()

    assert columns_by_group([files], NAMES) is None


def test_a_part_across_several_batches_becomes_one_file(tmp_path: Path) -> None:
    days = [1] * 10 + [2] * (2 * BATCH_ROWS) + [3] * 10
    path = tmp_path / "part-00000.parquet"
    pq.write_table(pa.table({"n": range(len(days)), "day": days}), path)

    made = split_file(path, ["day"])

    assert [each.relative_to(tmp_path) for each in made] == [
        Path("day=1/part-00000.parquet"),
        Path("day=2/part-00000.parquet"),
        Path("day=3/part-00000.parquet"),
    ]
    numbers = [number for each in made for number in load_columns(str(each), ["n"])["n"].to_pylist()]
    assert numbers == [*range(len(days))]
    assert not path.exists()


def test_a_part_that_ends_with_a_batch_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.parquet"
    pq.write_table(pa.table({"day": [1] * BATCH_ROWS + [2], "n": range(BATCH_ROWS + 1)}), path)

    made = split_file(path, ["day"])

    assert [load_columns(str(each), ["n"]).num_rows for each in made] == [BATCH_ROWS, 1]
