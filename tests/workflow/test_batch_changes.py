"""Check the comparison of batches of prepared files with a plain comparison of their records."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backstream.definition.prepared_columns import ARRIVAL_TIME, EVENT_TIME, FILE, LINE
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS
from backstream.eventtime.stale_windows import ChangeKind
from backstream.native.raw_contents import summarize_contents
from backstream.source.raw_contents import RawContents
from backstream.source.raw_files import RawFile
from backstream.workflow.late_data.batch_changes import BatchChanges, Move, OtherPaths, compare_batches

Record = tuple[int | None, str]
"""The event time in minutes, and a value."""
NO_OTHERS = OtherPaths(tuple, tuple)


class Batch(NamedTuple):
    """Raw files by path, with their records; the version of a file is a digest of its content."""

    files: Mapping[str, Sequence[Record]]

    def summarize(self, folder: Path, made_with: str = "", *, is_named: bool = True) -> RawContents:
        """Write the records in any order into prepared files, and return the contents."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = [(*record, path) for path, records in self.files.items() for record in records]
        random.Random(len(rows)).shuffle(rows)  # noqa: S311 - test data
        for number, part in enumerate((rows[::2], rows[1::2])):
            columns = {
                EVENT_TIME: pa.array([at and at * 60_000_000 for at, _, _ in part], pa.timestamp("us", "UTC")),
                "v": pa.array([value for _, value, _ in part], pa.string()),
                LINE: pa.array(range(len(part)), pa.int64()),
            }
            names = {FILE: pa.array([f"file:{path}" for *_, path in part], pa.string())} if is_named else {}
            pq.write_table(pa.table(columns | names), folder / f"{number}.parquet")
        versions = [RawFile(path, len(each), hash(tuple(each))) for path, each in self.files.items()]
        return summarize_contents(folder, versions, made_with)


def compared(
    folder: Path, before: Batch, after: Batch, made_with: str = "", *, is_named: bool = True
) -> BatchChanges:
    first = before.summarize(folder / "before", is_named=is_named)
    second = after.summarize(folder / "after", made_with, is_named=is_named)
    return compare_batches([first], [second], (), NO_OTHERS)


def described(changes: BatchChanges) -> dict[str, tuple[str, dict[int, int]]]:
    """Return by path the change, and how many more records there are by minute."""
    return {
        file.path: (
            file.change.value,
            {each.start_ms // MINUTE_MS: each.after - each.before for each in file.slices},
        )
        for file in changes.files
    }


DAYS: dict[str, list[Record]] = {
    f"/in/d{day}": [(1440 * day + 60 * hour, f"{day} {hour}") for hour in range(24)] for day in (1, 2, 3)
}


def test_only_the_slice_of_an_added_record_has_changed(tmp_path: Path) -> None:
    after = DAYS | {"/in/d3": [*DAYS["/in/d3"], (1440 * 3 + 750, "more")]}

    assert described(compared(tmp_path, Batch(DAYS), Batch(after))) == {"/in/d3": ("changed", {1440 * 3 + 750: 1})}


def test_a_changed_value_changes_its_slice_and_no_number(tmp_path: Path) -> None:
    after = DAYS | {"/in/d2": [(at, "other" if at == 2880 else value) for at, value in DAYS["/in/d2"]]}

    assert described(compared(tmp_path, Batch(DAYS), Batch(after))) == {"/in/d2": ("changed", {2880: 0})}


def test_a_second_copy_of_a_record_is_a_change(tmp_path: Path) -> None:
    before = {"/in/a": [(1, "x"), (1, "x"), (2, "y")]}
    after = {"/in/a": [(1, "x"), (1, "x"), (1, "x"), (1, "x"), (2, "y")]}

    assert described(compared(tmp_path, Batch(before), Batch(after))) == {"/in/a": ("changed", {1: 2})}


def test_files_that_are_renamed_compressed_split_or_joined_change_nothing(tmp_path: Path) -> None:
    first, second, third = DAYS.values()
    after = {"/in/other": first, "/in/d2.gz": second[5:], "/in/half": second[:5], "/in/d3": third[::-1]}

    changes = compared(tmp_path, Batch(DAYS), Batch(after))

    assert changes.files == ()
    assert changes.moves["/in/other"] == Move("/in/d1", ChangeKind.RENAMED, len(first))
    assert changes.moves["/in/d2.gz"] == Move("/in/d2", ChangeKind.COMPRESSED, len(second[5:]))


def test_a_renamed_file_with_another_record_has_changed(tmp_path: Path) -> None:
    after = {"/in/new": [*DAYS["/in/d1"], (5, "more")], "/in/d2.gz": DAYS["/in/d2"][1:], "/in/d3": DAYS["/in/d3"]}

    changes = compared(tmp_path, Batch(DAYS), Batch(after))

    assert described(changes) == {"/in/new": ("changed", {5: 1}), "/in/d2.gz": ("changed", {2880: -1})}
    assert changes.moves == {
        "/in/new": Move("/in/d1", ChangeKind.CHANGED, len(after["/in/new"])),
        "/in/d2.gz": Move("/in/d2", ChangeKind.CHANGED, len(after["/in/d2.gz"])),
    }


def test_records_without_an_event_time_and_empty_files_change_no_slice(tmp_path: Path) -> None:
    before = DAYS | {"/in/empty": [], "/in/bad": [(None, "no time")]}
    after = DAYS | {"/in/empty": [(7, "first")], "/in/bad": [(None, "no time"), (None, "again")], "/in/none": []}

    assert described(compared(tmp_path, Batch(before), Batch(after))) == {"/in/empty": ("changed", {7: 1})}


def test_a_file_that_is_transformed_otherwise_is_not_called_changed(tmp_path: Path) -> None:
    after = {"/in/a": [(1, "x"), (2, "other")]}
    first = Batch({"/in/a": [(1, "x"), (2, "y")]}).summarize(tmp_path / "before")
    second = Batch(after).summarize(tmp_path / "after", "other code")

    changes = compare_batches([first], [RawContents(first.files, *_after_files(second))], (), NO_OTHERS)

    assert described(changes) == {"/in/a": ("transformed otherwise", {2: 0})}


def _after_files(contents: RawContents) -> tuple[str, str, int, pa.Table]:
    return contents.made_with, contents.hashed_by, contents.width_ms, contents.rows


def test_records_that_do_not_name_their_file_are_compared_all_together(tmp_path: Path) -> None:
    after = DAYS | {"/in/d3": [*DAYS["/in/d3"], (4, "more")]}

    assert described(compared(tmp_path, Batch(DAYS), Batch(after), is_named=False)) == {
        "/in/d3": ("changed", {4: 1})
    }


def test_all_slices_of_a_changed_file_have_changed_if_another_program_hashed_it(tmp_path: Path) -> None:
    first = Batch(DAYS).summarize(tmp_path / "before")
    second = Batch(DAYS | {"/in/d3": [(4320, "3 0"), (4321, "new")]}).summarize(tmp_path / "after")
    other = RawContents(first.files, "", "another version", first.width_ms, first.rows)

    changes = compare_batches([other], [second], (), NO_OTHERS)

    hours = {4320 + 60 * hour: -1 for hour in range(24)}
    assert described(changes) == {"/in/d3": ("changed", {**hours, 4320: 0, 4321: 1})}


def test_files_that_are_far_in_time_decide_whether_a_file_is_new(tmp_path: Path) -> None:
    contents = Batch({"/in/a": [(1, "x")]}).summarize(tmp_path)
    others = OtherPaths(lambda: {"/in/a"}, lambda: {"/in/a"})

    kinds = [
        compare_batches(before, after, (), each).files[0].change
        for before, after in (([], [contents]), ([contents], []))
        for each in (NO_OTHERS, others)
    ]

    assert kinds == [ChangeKind.ADDED, ChangeKind.CHANGED, ChangeKind.REMOVED, ChangeKind.CHANGED]


@pytest.mark.parametrize("seed", range(8))
def test_the_changed_slices_are_those_whose_records_differ(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - test data
    before: dict[str, list[Record]] = {
        f"/in/{number}": [(chance.randrange(-50, 50), chance.choice("ab")) for _ in range(chance.randrange(12))]
        for number in range(6)
    }
    after = {path: list(records) for path, records in before.items()}
    for _ in range(chance.randrange(1, 6)):
        path, other = chance.sample(sorted(after), 2)
        change = chance.choice(("append", "delete", "move", "rename"))
        if change == "append":
            after[path].append((chance.randrange(-50, 50), chance.choice("ab")))
        elif change == "delete":
            after[path] = after[path][1:]
        elif change == "move":
            after[path], after[other] = [], after[other] + after[path]
        else:
            after[f"{path}-{seed}"] = after.pop(path)

    changes = compared(tmp_path, Batch(before), Batch(after))

    old, new = (Counter(record for records in side.values() for record in records) for side in (before, after))
    wanted = {at for at, _ in (old - new) + (new - old)}
    slices = [
        (each.start_ms // MINUTE_MS, each.after - each.before) for file in changes.files for each in file.slices
    ]
    assert {at for at, _ in slices} == wanted
    more = Counter(at for at, _ in new.elements())
    more.subtract(at for at, _ in old.elements())
    net = Counter[int | None]()
    for at, count in slices:
        net[at] += count
    assert all(net[at] == more[at] for at in wanted)


def test_a_long_file_has_wider_slices_and_is_compared_with_narrow_ones(tmp_path: Path) -> None:
    def prepared(minutes: int, more: int = 0) -> RawContents:
        at_us = np.append(np.arange(minutes), np.full(more, 70)) * 60_000_000
        columns = {
            EVENT_TIME: pa.array(at_us, pa.timestamp("us", "UTC")),
            ARRIVAL_TIME: pa.array(at_us + 1_000, pa.timestamp("us", "UTC")),
            FILE: pa.array(["file:/in/a"] * len(at_us)).dictionary_encode(),
        }
        folder = tmp_path / str(minutes)
        folder.mkdir()
        pq.write_table(pa.table(columns), folder / "0.parquet")
        return summarize_contents(folder, [RawFile("/in/a", minutes, 0)], "")

    short, long = prepared(1_440), prepared(400_000, 1)
    assert (short.width_ms, long.width_ms) == (MINUTE_MS, 15 * MINUTE_MS)
    assert long.rows.num_rows < 30_000

    (change,) = compare_batches([short], [long], (), NO_OTHERS).files

    within_a_day = [each for each in change.slices if each.end_ms <= DAY_MS]
    assert [(each.start_ms, each.before, each.after) for each in within_a_day] == [(HOUR_MS, 15, 16)]
    assert within_a_day[0].first_arrival_ms == HOUR_MS + 1


def test_the_contents_are_read_as_they_were_written(tmp_path: Path) -> None:
    contents = Batch(DAYS).summarize(tmp_path / "files")
    contents.write(tmp_path, "batch-1")

    assert RawContents.find(tmp_path, "batch-1") == contents
    assert RawContents.find(tmp_path, "batch-2") is None
