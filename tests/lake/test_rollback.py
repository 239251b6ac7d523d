from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from backstream.errors import ConflictError, LedgerError
from backstream.lake.ledger import record_run, run_row
from backstream.lake.maintenance import vacuum_tables
from backstream.lake.publication import rollback as module
from backstream.lake.publication.publish import publish_range
from backstream.lake.publication.restatements import append_restatements
from backstream.lake.publication.rollback import roll_back_run
from backstream.lake.reader import load_published_rows, load_rows
from backstream.lake.snapshots import summary_property
from backstream.runs.results import Verdict
from backstream.runs.status import RunStatus

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

pytestmark = pytest.mark.slow

DAY = ("2013-02-01", "2013-02-02")


def test_a_rollback_restores_the_range_and_keeps_later_runs(lake: Lake) -> None:
    first = lake.publish("2013-02-01", "2013-02-03", {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 2})
    wrong = lake.publish(*DAY, {"2013-02-01T06:00Z": 10, "2013-02-01T07:00Z": 11}, trigger="wrong")
    lake.publish("2013-02-02", "2013-02-03", {"2013-02-02T05:00Z": 20}, trigger="later")

    done = roll_back_run(lake.home, wrong.run_id).publication

    assert (done.rows, done.replaced_rows, done.files, done.already) == (1, 2, 1, False)
    assert lake.departures() == {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 20}
    restored = load_rows(lake.home, "flights").to_pylist()[0]
    assert restored["run_id"] == first.run_id


def test_a_rollback_is_one_tagged_snapshot_with_a_run_id_of_its_own(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="wrong")

    done = roll_back_run(lake.home, wrong.run_id).publication

    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.parent_snapshot_id == wrong.snapshots[""]
    assert done.run_id == f"rollback-{wrong.run_id}"
    assert summary_property(snapshot, "backstream.run_id") == done.run_id
    assert summary_property(snapshot, "backstream.rolled_back") == wrong.run_id
    assert lake.table().refs()[f"run/{done.run_id}"].snapshot_id == snapshot.snapshot_id


def test_a_rollback_copies_files_to_new_paths(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    removed = {task.file.file_path for task in lake.table().scan().plan_files()}
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="wrong")

    roll_back_run(lake.home, wrong.run_id)

    now = {task.file.file_path for task in lake.table().scan().plan_files()}
    assert len(now) == 1
    assert now & removed == set()
    for path in removed:
        Path(path.removeprefix("file://")).unlink()
    assert lake.departures() == {"2013-02-01T05:00Z": 1}


def test_the_first_run_rolled_back_leaves_the_range_empty(lake: Lake) -> None:
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})

    done = roll_back_run(lake.home, wrong.run_id).publication

    assert (done.rows, done.replaced_rows) == (0, 1)
    assert lake.departures() == {}


def test_a_second_rollback_of_a_run_changes_nothing(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="wrong")
    first = roll_back_run(lake.home, wrong.run_id).publication
    lake.publish(*DAY, {"2013-02-01T05:00Z": 3}, trigger="right")

    again = roll_back_run(lake.home, wrong.run_id).publication

    assert again.already
    assert again.snapshots == first.snapshots
    assert lake.departures() == {"2013-02-01T05:00Z": 3}


def test_a_rollback_can_be_rolled_back(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    run = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="right after all")
    undone = roll_back_run(lake.home, run.run_id).publication

    roll_back_run(lake.home, undone.run_id)

    assert lake.departures() == {"2013-02-01T05:00Z": 2}


def test_a_rollback_is_a_restatement_too(lake: Lake) -> None:
    first = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="wrong")
    undone = roll_back_run(lake.home, wrong.run_id).publication

    found = load_published_rows(lake.home, "flights", "restatements").to_pylist()

    columns = ("old_value", "new_value", "old_run_id", "run_id", "carrier")
    assert sorted(tuple(row[name] for name in columns) for row in found) == [
        ("1", "2", first.run_id, wrong.run_id, "UA"),
        ("2", "1", wrong.run_id, undone.run_id, "UA"),
    ]


def test_a_later_run_in_the_range_is_named(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-03", {"2013-02-01T05:00Z": 1})
    wrong = lake.publish("2013-02-01", "2013-02-03", {"2013-02-01T05:00Z": 2}, trigger="wrong")
    later = lake.publish("2013-02-02", "2013-02-03", {}, trigger="later")

    with pytest.raises(ConflictError) as caught:
        roll_back_run(lake.home, wrong.run_id)

    assert str(caught.value) == (
        f"refusing to roll back {wrong.run_id}: its range was published again\n"
        "  2013-02-01T00:00Z to 2013-02-03T00:00Z: version 3 changed it"
        f" (2013-02-02T00:00Z to 2013-02-03T00:00Z, published by run {later.run_id})"
    )
    assert lake.departures() == {"2013-02-01T05:00Z": 2}


def test_a_rollback_fails_if_the_earlier_snapshot_has_expired(lake: Lake) -> None:
    first = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="wrong")
    lake.expire(first)

    with pytest.raises(LedgerError) as caught:
        roll_back_run(lake.home, wrong.run_id)

    assert str(caught.value) == (
        f"the snapshot before run {wrong.run_id} in table `flights` has expired\n  it was version 1"
    )


def test_a_run_behind_an_expired_snapshot_is_refused(lake: Lake) -> None:
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    between = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="between")
    lake.publish("2013-02-02", "2013-02-03", {}, trigger="later")
    lake.expire(between)

    with pytest.raises(ConflictError) as caught:
        roll_back_run(lake.home, wrong.run_id)

    assert str(caught.value) == (
        f"refusing to roll back {wrong.run_id}: later changes of its range are unknown\n"
        "  2013-02-01T00:00Z to 2013-02-02T00:00Z: snapshots between the run and the current table have expired"
    )


def test_an_unpublished_run_and_an_unknown_run_have_different_errors(lake: Lake) -> None:
    plan = lake.plan(*DAY)
    plan.write()

    with pytest.raises(LedgerError) as planned:
        roll_back_run(lake.home, plan.run_id)
    with pytest.raises(LedgerError) as unknown:
        roll_back_run(lake.home, "cli.nothing")

    assert str(planned.value) == f"run {plan.run_id} of flights was planned but never published"
    assert str(unknown.value) == f"no run cli.nothing in {lake.home.path}"


def test_a_run_with_an_expired_snapshot_is_found_in_the_ledger(lake: Lake) -> None:
    plan = lake.plan(*DAY)
    done = publish_range(plan, lake.staged(plan, {"2013-02-01T05:00Z": 1}))
    record_run(lake.home, run_row(plan, RunStatus.PUBLISHED, (1_000, 2_000), Verdict.PASS))
    lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")
    lake.expire(done)

    with pytest.raises(LedgerError) as caught:
        roll_back_run(lake.home, plan.run_id)

    assert str(caught.value) == (
        f"the snapshot of run {plan.run_id} has expired; according to the ledger, it published into flights"
    )


def test_a_run_planned_before_the_rollback_conflicts_with_it(lake: Lake) -> None:
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    plan = lake.plan(*DAY, "stale")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2})
    roll_back_run(lake.home, wrong.run_id)

    with pytest.raises(ConflictError) as caught:
        publish_range(plan, manifests)

    assert f"published by run rollback-{wrong.run_id}" in str(caught.value)


def test_rolled_back_rows_are_readable_after_a_vacuum(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="wrong")
    roll_back_run(lake.home, wrong.run_id)

    vacuum_tables(lake.home, "flights", 0)

    assert lake.departures() == {"2013-02-01T05:00Z": 1}
    then = load_rows(lake.home, "flights", snapshot_id=wrong.snapshots[""])
    assert then["departures"].to_pylist() == [2]


def test_of_a_rollback_and_a_publication_at_the_same_moment_exactly_one_wins(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="wrong")
    plan = lake.plan(*DAY, "right")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    barrier = Barrier(2)

    def at_once(deed: Callable[[], object]) -> bool:
        barrier.wait()
        try:
            deed()
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        undone = pool.submit(at_once, lambda: roll_back_run(lake.home, wrong.run_id))
        published = pool.submit(at_once, lambda: publish_range(plan, manifests))

    assert undone.result() is not published.result()
    assert lake.departures() == {"2013-02-01T05:00Z": 3 if published.result() else 1}
    assert len(lake.table().snapshots()) == 3


def test_a_run_published_just_before_a_rollback_commits_causes_a_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    wrong = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="wrong")

    def overtaken(*arguments: Any) -> int:
        lake.publish(*DAY, {"2013-02-01T05:00Z": 3}, trigger="quicker")
        return append_restatements(*arguments)

    monkeypatch.setattr(module, "append_restatements", overtaken)

    with pytest.raises(ConflictError):
        roll_back_run(lake.home, wrong.run_id)

    assert lake.departures() == {"2013-02-01T05:00Z": 3}
    told = load_published_rows(lake.home, "flights", "restatements")["run_id"].to_pylist()
    assert f"rollback-{wrong.run_id}" not in told


def test_a_retry_of_a_rolled_back_run_is_refused(lake: Lake) -> None:
    plan = lake.plan(*DAY, "wrong")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2})
    publish_range(plan, manifests)
    undo_id = roll_back_run(lake.home, plan.run_id).publication.run_id

    with pytest.raises(ConflictError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "refusing to publish flights 2013-02-01T00:00Z to 2013-02-02T00:00Z:"
        " this run was published, and then rolled back\n"
        f"  {plan.run_id} was undone by {undo_id}\n\n"
        f"hint: plan the range again, or undo the rollback: backstream rollback {undo_id}"
    )
    assert lake.departures() == {}
    roll_back_run(lake.home, undo_id)
    assert publish_range(plan, manifests).already
    assert lake.departures() == {"2013-02-01T05:00Z": 2}
