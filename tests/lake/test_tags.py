from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.lake.test_conflicts import compact

from backstream.lake.ledger import record_run, run_row
from backstream.lake.maintenance import vacuum_tables
from backstream.lake.publication.publish import publish_range
from backstream.lake.publication.rollback import roll_back_run
from backstream.lake.reader import load_rows
from backstream.lake.snapshots import find_snapshot_of_run, list_retained_snapshots, summary_property
from backstream.runs.results import Publication, Verdict
from backstream.runs.status import RunStatus

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

DAY = ("2013-02-01", "2013-02-02")


def refs(lake: Lake) -> dict[str, int]:
    """Return the snapshot of each tag and branch of the windows, by name."""
    return {name: ref.snapshot_id for name, ref in lake.table().refs().items()}


def test_each_run_leaves_a_tag_on_its_snapshot(lake: Lake) -> None:
    first = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    second = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")

    assert refs(lake) == {
        "main": second.snapshots[""],
        f"run/{first.run_id}": first.snapshots[""],
        f"run/{second.run_id}": second.snapshots[""],
    }


def test_the_tag_is_set_by_the_commit_that_makes_the_snapshot(lake: Lake) -> None:
    lake.make(lake.plan(*DAY))
    metadata_before = lake.table().metadata_location

    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})

    # Each commit adds an entry with the replaced metadata to the log.
    assert lake.table().metadata.metadata_log[-1].metadata_file == metadata_before


def test_a_tagged_snapshot_survives_the_expiry_of_all_that_is_old(lake: Lake) -> None:
    first = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")

    lake.table().maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()

    assert load_rows(lake.home, "flights", snapshot_id=first.snapshots[""])["departures"].to_pylist() == [1]


def expire_all_without_a_tag(lake: Lake) -> None:
    lake.table().maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()


def test_a_run_keeps_the_state_before_it_that_another_program_made(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    compact(lake)
    state = lake.table().current_snapshot()
    assert state is not None
    second = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")
    assert refs(lake)[f"before/{second.run_id}"] == state.snapshot_id

    expire_all_without_a_tag(lake)

    roll_back_run(lake.home, second.run_id)
    assert lake.departures() == {"2013-02-01T05:00Z": 1}


def test_a_vacuum_removes_the_tag_of_the_state_before_an_old_run(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    compact(lake)
    second = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")
    for number in range(2):
        last = lake.publish(*DAY, {"2013-02-01T05:00Z": 3}, trigger=f"{number}")
    assert f"before/{second.run_id}" in refs(lake)

    vacuum_tables(lake.home, "flights", 0, keep_runs=1)

    assert {*refs(lake)} == {"main", f"run/{last.run_id}"}


def test_a_retry_sets_the_tag_that_is_missing(lake: Lake) -> None:
    plan = lake.plan(*DAY)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 1})
    publish_range(plan, manifests)
    lake.table().manage_snapshots().remove_tag(f"run/{plan.run_id}").commit()

    done = publish_range(plan, manifests)

    assert done.already
    assert refs(lake)[f"run/{plan.run_id}"] == done.snapshots[""]


def test_a_run_before_an_expired_one_is_still_found_by_its_tag(lake: Lake) -> None:
    first = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    second = lake.publish("2013-02-02", "2013-02-03", {"2013-02-02T05:00Z": 2})
    third = lake.publish("2013-02-03", "2013-02-04", {"2013-02-03T05:00Z": 3})
    lake.expire(second)

    run_ids = [
        summary_property(snapshot, "backstream.run_id") for snapshot in list_retained_snapshots(lake.table())
    ]

    assert run_ids == [third.run_id, first.run_id]
    assert find_snapshot_of_run(lake.table(), second.run_id) is None


def test_a_retry_of_a_run_with_an_expired_snapshot_uses_its_mark_in_the_table(lake: Lake) -> None:
    plan = lake.plan(*DAY)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 1})
    done = publish_range(plan, manifests)
    lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")
    lake.expire(done)

    assert publish_range(plan, manifests) == replace(done, already=True)

    assert lake.departures() == {"2013-02-01T05:00Z": 2}


def test_a_retry_of_a_run_with_an_expired_snapshot_and_no_mark_uses_the_ledger(lake: Lake) -> None:
    plan = lake.plan(*DAY)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 1})
    done = publish_range(plan, manifests)
    record_run(lake.home, run_row(plan, RunStatus.PUBLISHED, (1_000, 2_000), Verdict.PASS, rows=1))
    lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")
    lake.expire(done)
    with lake.table().transaction() as transaction:
        transaction.remove_properties("backstream.commits")

    again = publish_range(plan, manifests)

    assert again == Publication(
        run_id=plan.run_id,
        dataset="flights",
        since_ms=plan.since_ms,
        until_ms=plan.until_ms,
        snapshots={},
        rows=1,
        replaced_rows=0,
        files=0,
        published_at="1970-01-01T00:00:02Z",
        already=True,
    )
    assert lake.departures() == {"2013-02-01T05:00Z": 2}


def test_a_set_back_table_takes_the_run_again_and_moves_its_tag(lake: Lake) -> None:
    first = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    plan = lake.plan(*DAY, "later")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2})
    once = publish_range(plan, manifests)
    lake.table().manage_snapshots().set_current_snapshot(first.snapshots[""]).commit()

    again = publish_range(plan, manifests)

    assert again.snapshots[""] != once.snapshots[""]
    assert replace(again, snapshots={}, published_at="") == replace(once, snapshots={}, published_at="")
    assert refs(lake)[f"run/{plan.run_id}"] == again.snapshots[""]
