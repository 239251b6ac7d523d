from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.transforms import DayTransform

from backstream.errors import CommitError, ConflictError, ContractError
from backstream.lake import commit
from backstream.lake.publication import publish
from backstream.lake.publication.data_files import copy_data_files, to_data_files
from backstream.lake.publication.publish import publish_range
from backstream.lake.publication.rollback import roll_back_run
from backstream.lake.reader import load_rows
from backstream.lake.snapshot_producers import OneTransaction, stage_snapshot
from backstream.lake.storage import plain_path
from backstream.runs.manifest import StagedFile

if TYPE_CHECKING:
    from tests.lake.conftest import Lake


def test_disjoint_runs_planned_against_the_same_state_both_succeed(lake: Lake) -> None:
    first = lake.plan("2013-02-01", "2013-02-02")
    second = lake.plan("2013-02-02", "2013-02-03")
    publish_range(first, lake.staged(first, {"2013-02-01T05:00Z": 3}))

    publish_range(second, lake.staged(second, {"2013-02-02T05:00Z": 5}))

    assert lake.departures() == {"2013-02-01T05:00Z": 3, "2013-02-02T05:00Z": 5}


def test_a_conflict_error_names_the_overlapping_run(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-03", {"2013-02-01T05:00Z": 1})
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2}, metrics=[("EWR", 2)])
    other = lake.publish("2013-02-01", "2013-02-03", {"2013-02-01T05:00Z": 3}, trigger="other")

    with pytest.raises(ConflictError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "refusing to publish flights 2013-02-01T00:00Z to 2013-02-02T00:00Z:"
        " the table changed since it was planned\n"
        "  planned against version 1, found version 2"
        f" (2013-02-01T00:00Z to 2013-02-03T00:00Z, published by run {other.run_id})\n"
        "\n"
        "hint: plan the range again; nothing was published"
    )
    assert lake.departures() == {"2013-02-01T05:00Z": 3}
    assert load_rows(lake.home, "flights__metrics").num_rows == 0


def test_an_overlapping_run_is_a_conflict_on_an_empty_table_too(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-03")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2})
    other = lake.publish("2013-02-02", "2013-02-04", {}, trigger="other")

    with pytest.raises(ConflictError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "refusing to publish flights 2013-02-01T00:00Z to 2013-02-03T00:00Z:"
        " the table changed since it was planned\n"
        "  planned when the table was empty, found version 1"
        f" (2013-02-02T00:00Z to 2013-02-04T00:00Z, published by run {other.run_id})\n"
        "\n"
        "hint: plan the range again; nothing was published"
    )
    assert lake.departures() == {}


def test_a_change_of_the_range_by_another_program_is_a_conflict(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 1})
    plan = lake.plan("2013-02-01", "2013-02-03")
    manifests = lake.staged(plan, {"2013-02-02T05:00Z": 2})
    lake.table().delete("departures == 1")

    with pytest.raises(ConflictError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "refusing to publish flights 2013-02-01T00:00Z to 2013-02-03T00:00Z:"
        " the table changed since it was planned\n"
        "  planned against version 1, found version 2 (delete, made by another program)\n"
        "\n"
        "hint: plan the range again; nothing was published"
    )


def test_deleted_and_appended_rows_of_other_days_are_no_conflict(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-04", {"2013-02-01T05:00Z": 1, "2013-02-03T05:00Z": 3})
    plan = lake.plan("2013-02-02", "2013-02-03")
    manifests = lake.staged(plan, {"2013-02-02T05:00Z": 2})
    lake.table().delete("departures == 3")
    append_again(lake)

    publish_range(plan, manifests)

    assert lake.departures() == {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 2}
    assert load_rows(lake.home, "flights").num_rows == 3


def copy_files(table: Table) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files of a table, and copies of them as another program writes them."""
    files = [task.file for task in table.scan().plan_files()]
    locations = copy_data_files(table, uuid4().hex, [file.file_path for file in files])
    staged = [
        StagedFile(plain_path(location), file.file_size_in_bytes, file.record_count)
        for location, file in zip(locations, files, strict=True)
    ]
    return files, to_data_files(table, staged)


def append_again(lake: Lake) -> None:
    """Append all rows once more, without a run."""
    table = lake.table()
    commit.commit_snapshot(table, Operation.APPEND, copy_files(table)[1], [], {})


def compact(lake: Lake) -> None:
    """Replace all files by others of the same rows, as a compaction does; PyIceberg has no such operation."""
    table = lake.table()
    old, new = copy_files(table)
    transaction = OneTransaction(table)
    stage_snapshot(transaction, table, Operation.OVERWRITE, new, old, {})
    for update in transaction._updates:  # noqa: SLF001
        if isinstance(update, AddSnapshotUpdate) and update.snapshot.summary:
            object.__setattr__(update.snapshot.summary, "operation", Operation.REPLACE)
    transaction.commit_transaction()


def test_a_compaction_of_the_range_is_no_conflict(lake: Lake) -> None:
    first = lake.publish("2013-02-01", "2013-02-03", {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 2})
    plan = lake.plan("2013-02-01", "2013-02-02", "again")
    manifests = lake.staged(plan, {"2013-02-01T06:00Z": 3})
    compact(lake)

    publication = publish_range(plan, manifests)

    assert publication.replaced_rows == 1
    assert lake.departures() == {"2013-02-01T06:00Z": 3, "2013-02-02T05:00Z": 2}
    compact(lake)
    roll_back_run(lake.home, plan.run_id)
    assert lake.departures() == {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 2}
    assert {row["run_id"] for row in load_rows(lake.home, "flights").to_pylist()} == {first.run_id}


def test_a_commit_that_another_program_overtakes_is_repeated_on_the_new_state(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 1})
    plan = lake.plan("2013-02-02", "2013-02-03")
    manifests = lake.staged(plan, {"2013-02-02T05:00Z": 2})
    commit_once = commit.commit_snapshot

    def overtaken(table: Table, *arguments: Any) -> Snapshot:
        monkeypatch.setattr(publish, "commit_snapshot", commit_once)
        append_again(lake)
        return commit_once(table, *arguments)

    monkeypatch.setattr(publish, "commit_snapshot", overtaken)
    publish_range(plan, manifests)

    assert lake.departures() == {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 2}
    assert load_rows(lake.home, "flights").num_rows == 3


def test_a_base_that_the_history_no_longer_reaches_is_a_conflict(lake: Lake) -> None:
    first = lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 1})
    lake.publish("2013-02-02", "2013-02-03", {"2013-02-02T05:00Z": 2})
    plan = lake.plan("2013-02-03", "2013-02-04")
    manifests = lake.staged(plan, {"2013-02-03T05:00Z": 3})
    lake.table().manage_snapshots().set_current_snapshot(first.snapshots[""]).commit()

    with pytest.raises(ConflictError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "refusing to publish flights 2013-02-03T00:00Z to 2013-02-04T00:00Z:"
        " the table has another history now\n"
        "  planned against version 2, and the table's history does not lead back to that\n"
        "\n"
        "hint: plan the range again; nothing was published"
    )


def test_a_history_that_was_cut_since_an_empty_table_is_a_conflict(lake: Lake) -> None:
    plan = lake.plan("2013-02-03", "2013-02-04")
    manifests = lake.staged(plan, {"2013-02-03T05:00Z": 3})
    first = lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 1})
    lake.publish("2013-02-02", "2013-02-03", {"2013-02-02T05:00Z": 2})
    lake.expire(first)

    with pytest.raises(ConflictError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "refusing to publish flights 2013-02-03T00:00Z to 2013-02-04T00:00Z:"
        " the table has another history now\n"
        "  planned when the table was empty, and the table's history does not lead back to that\n"
        "\n"
        "hint: plan the range again; nothing was published"
    )


def test_a_file_that_reaches_beyond_the_range_is_not_taken_away(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-03", {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 2})
    two_days = load_rows(lake.home, "flights")
    lake.table().update_spec().remove_field("window_start_day").commit()
    lake.table().append(two_days)
    lake.table().update_spec().add_field("window_start", DayTransform(), "window_start_day").commit()
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    (foreign,) = [task.file.file_path for task in lake.table().scan().plan_files() if task.file.record_count == 2]

    with pytest.raises(ContractError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "table `flights` has a file that does not hold one day of 2013-02-01T00:00Z to 2013-02-02T00:00Z\n"
        f"  {foreign}"
    )


def test_a_conflict_at_every_attempt_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_FIRST_PAUSE_S", 0)
    attempts = []

    def overtaken() -> None:
        attempts.append(1)
        raise CommitFailedException

    with pytest.raises(CommitError) as caught:
        commit.with_retries("publish flights", overtaken)

    assert str(caught.value) == (
        "could not publish flights: all 8 attempts conflicted with other commits\n\nhint: try again"
    )
    assert len(attempts) == 8
