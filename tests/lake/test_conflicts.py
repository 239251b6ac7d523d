from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.transforms import DayTransform

from backstream.errors import CommitError, ConflictError, ContractError
from backstream.lake import commit
from backstream.lake.publish import publish_range
from backstream.lake.reader import load_rows

if TYPE_CHECKING:
    from tests.lake.conftest import Lake


def test_disjoint_runs_planned_against_the_same_state_both_succeed(lake: Lake) -> None:
    first = lake.plan("2013-02-01", "2013-02-02")
    second = lake.plan("2013-02-02", "2013-02-03")
    publish_range(first, lake.staged(first, {"2013-02-01T05:00Z": 3}))

    publish_range(second, lake.staged(second, {"2013-02-02T05:00Z": 5}))

    assert lake.departures() == {"2013-02-01T05:00Z": 3, "2013-02-02T05:00Z": 5}


def test_an_overlapping_run_that_came_first_is_named(lake: Lake) -> None:
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


def test_a_snapshot_that_no_run_made_is_a_conflict(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 1})
    plan = lake.plan("2013-02-02", "2013-02-03")
    manifests = lake.staged(plan, {"2013-02-02T05:00Z": 2})
    lake.table().delete("departures == 1")

    with pytest.raises(ConflictError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "refusing to publish flights 2013-02-02T00:00Z to 2013-02-03T00:00Z:"
        " the table changed since it was planned\n"
        "  planned against version 1, found version 2 (delete, made by another program)\n"
        "\n"
        "hint: plan the range again; nothing was published"
    )


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
