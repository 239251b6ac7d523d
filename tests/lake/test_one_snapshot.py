"""Publish through a REST catalog that keeps only the newest snapshot of a table and no tags, as Nessie does."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from backstream.errors import ConflictError, LedgerError
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.catalog_address import namespace
from backstream.lake.catalog_history import CatalogHistory
from backstream.lake.publication.data_files import to_data_files
from backstream.lake.publication.publish import find_commit, publish_range
from backstream.lake.reader import load_rows
from backstream.workflow.checks.check_installation import check_installation
from backstream.workflow.checks.findings import State
from backstream.workflow.demands import is_committed
from backstream.workflow.history import load_dataset_rows, rollback_run

if TYPE_CHECKING:
    from tests.lake.conftest import Lake
    from tests.sources.rest_server import RestCatalog

RANGE = ("2013-02-01", "2013-02-02")


@pytest.mark.parametrize("answer", ["applied 500", "applied 409", "applied cut", "overtaken 500", "overtaken 409"])
@pytest.mark.parametrize("name", ["flights", "flights__metrics"])
def test_a_run_finds_its_commit_below_that_of_another_program(
    lake: Lake, rest_catalog: RestCatalog, name: str, answer: str
) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    plan = lake.plan(*RANGE, "again")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3}, metrics=[("EWR", 3)])
    rest_catalog.fail_next(name, answer)

    done = publish_range(plan, manifests)

    assert (done.rows, done.replaced_rows, done.already) == (1, 1, False)
    assert lake.departures() == {"2013-02-01T05:00Z": 3}
    assert load_rows(lake.home, "flights__metrics").num_rows == 1
    assert len(lake.table(name).snapshots()) == 1


def test_a_repeated_run_knows_its_commit_below_others(lake: Lake) -> None:
    plan = lake.plan(*RANGE)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3}, metrics=[("EWR", 3)])
    first = publish_range(plan, manifests)
    lake.publish(*RANGE, {"2013-02-01T06:00Z": 4}, trigger="later")
    lake.table().append(lake.table().schema().as_arrow().empty_table())

    again = publish_range(plan, manifests)

    assert again.already
    assert (again.rows, again.snapshots, again.published_at) == (1, first.snapshots, first.published_at)
    assert is_committed(plan)
    assert find_commit(plan) == again
    assert lake.departures() == {"2013-02-01T06:00Z": 4}
    assert load_rows(lake.home, "flights__metrics").num_rows == 1


def test_doctor_and_the_first_plan_say_once_what_the_catalog_lacks(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    sentence = "this catalog keeps no history: no as-of, no rollback, no diff of a run"
    found = [finding for finding in check_installation(lake.home) if finding.part == "catalog"]
    catalog, warning = found
    assert (catalog.state, warning.state, warning.text) == (State.OK, State.WARN, sentence)
    lake.home.summary("catalog").unlink()

    for trigger in ("one", "two"):
        lake.plan(*RANGE, trigger)

    assert caplog.messages.count(f"notice: {sentence}") == 1
    with open_catalog_for_reading(lake.home) as opened:
        assert opened.list_tables(namespace()) == []


def test_a_catalog_that_keeps_only_snapshots_lacks_tags() -> None:
    assert CatalogHistory(snapshots=True, tags=False).notice.startswith("this catalog keeps no tags: ")
    assert not CatalogHistory().notice


def test_what_needs_history_is_refused_at_its_start(lake: Lake) -> None:
    first = lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    second = lake.publish(*RANGE, {"2013-02-01T05:00Z": 2}, trigger="second")
    before = lake.table().metadata_location

    for run_id in (first.run_id, second.run_id):
        for refused in (
            lambda: rollback_run(lake.home, run_id),  # noqa: B023 - called at once
            lambda: load_dataset_rows(lake.home, "flights", None, run_id).__enter__(),  # noqa: B023
        ):
            with pytest.raises(LedgerError, match="keeps no history: no as-of, no rollback, no diff of a run\n"):
                refused()

    assert lake.table().metadata_location == before
    with load_dataset_rows(lake.home, "flights", None, None) as rows:
        assert [table.num_rows for table in rows.days] == [1]


def test_runs_of_other_days_publish_and_one_of_the_same_day_is_refused(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-04", {"2013-02-01T05:00Z": 1, "2013-02-03T05:00Z": 1})
    days = ("2013-02-01", "2013-02-02", "2013-02-03", "2013-02-04")
    plans = [lake.plan(since, until, since) for since, until in pairwise(days)]
    late = lake.plan("2013-02-02", "2013-02-04", "late")
    staged = [lake.staged(plan, {f"{plan.triggered_by}T06:00Z": 2}) for plan in plans]
    late_staged = lake.staged(late, {"2013-02-02T07:00Z": 9})

    for plan, manifests in zip(plans, staged, strict=True):
        publish_range(plan, manifests)
    with pytest.raises(ConflictError, match=r"this range has other files now|published by run 2013-02-03"):
        publish_range(late, late_staged)

    assert lake.departures() == {f"{day}T06:00Z": 2 for day in days[:-1]}


def test_rows_of_another_program_in_the_range_are_not_replaced_unseen(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    plan = lake.plan(*RANGE, "late")
    manifests = lake.staged(plan, {"2013-02-01T06:00Z": 2})
    other = lake.plan("2013-02-02", "2013-02-03", "other")
    table, theirs = lake.table(), lake.plan(*RANGE, "theirs")
    [added] = to_data_files(table, lake.staged(theirs, {"2013-02-01T07:00Z": 4})[0].files[""])
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(added)
    publish_range(other, lake.staged(other, {"2013-02-02T06:00Z": 2}))

    with pytest.raises(ConflictError, match="this range has other files now"):
        publish_range(plan, manifests)

    assert load_rows(lake.home, "flights").num_rows == 3
