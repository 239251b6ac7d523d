from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Operation

from backstream.errors import ContractError, CountError, LedgerError, PlanError, StepError
from backstream.lake import snapshot_producers
from backstream.lake.catalog import FORMAT, FORMAT_VERSION, open_catalog_for_writing
from backstream.lake.publication.planned_tables import create_tables
from backstream.lake.publication.publish import append_side_tables, publish_range
from backstream.lake.publication.staged_files import check_staged_files
from backstream.lake.reader import load_rows
from backstream.lake.snapshots import list_ancestors, summary_property
from backstream.runs.plan import definition_id

if TYPE_CHECKING:
    from tests.lake.conftest import Lake


def test_a_first_publication_makes_its_rows_visible(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-03")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3, "2013-02-01T06:00Z": 4, "2013-02-02T05:00Z": 5})

    done = publish_range(plan, manifests)

    assert (done.rows, done.replaced_rows, done.files, done.already) == (3, 0, 2, False)
    assert done.run_id == plan.run_id
    assert lake.departures() == {"2013-02-01T05:00Z": 3, "2013-02-01T06:00Z": 4, "2013-02-02T05:00Z": 5}


def test_exactly_the_range_is_replaced_and_its_neighbours_stay(lake: Lake) -> None:
    lake.publish(
        "2013-02-01",
        "2013-02-04",
        {"2013-02-01T23:00Z": 1, "2013-02-02T00:00Z": 2, "2013-02-02T23:00Z": 3, "2013-02-03T00:00Z": 4},
    )

    done = lake.publish("2013-02-02", "2013-02-03", {"2013-02-02T12:00Z": 20})

    assert (done.rows, done.replaced_rows) == (1, 2)
    assert lake.departures() == {"2013-02-01T23:00Z": 1, "2013-02-02T12:00Z": 20, "2013-02-03T00:00Z": 4}


def test_windows_before_1970_are_replaced_like_any_other(lake: Lake) -> None:
    lake.publish("1969-12-30", "1970-01-02", {"1969-12-30T23:00Z": 1, "1969-12-31T23:00Z": 2, "1970-01-01": 3})

    lake.publish("1969-12-31", "1970-01-01", {"1969-12-31T00:00Z": 20})

    assert lake.departures("1969-01-01", "1971-01-01") == {
        "1969-12-30T23:00Z": 1,
        "1969-12-31T00:00Z": 20,
        "1970-01-01T00:00Z": 3,
    }


def test_no_rows_empty_the_range(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-03", {"2013-02-01T05:00Z": 3, "2013-02-02T05:00Z": 5})

    done = lake.publish("2013-02-01", "2013-02-02", {})

    assert (done.rows, done.replaced_rows, done.files) == (0, 1, 0)
    assert lake.departures() == {"2013-02-02T05:00Z": 5}


def test_no_rows_in_an_empty_table_are_published_too(lake: Lake) -> None:
    done = lake.publish("2013-02-01", "2013-02-02", {})

    assert (done.rows, done.replaced_rows, done.files) == (0, 0, 0)
    assert lake.departures() == {}
    assert len(lake.table().snapshots()) == 1


def test_the_same_run_again_is_already_published_and_writes_nothing(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3}, metrics=[("EWR", 3)])
    first = publish_range(plan, manifests)

    again = publish_range(plan, manifests)

    assert again == replace(first, already=True)
    assert len(lake.table().snapshots()) == 1
    assert len(lake.table("flights__metrics").snapshots()) == 1


def test_a_run_that_others_replaced_is_still_published(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    publish_range(plan, manifests)
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 30}, trigger="later")

    assert publish_range(plan, manifests).already
    assert lake.departures() == {"2013-02-01T05:00Z": 30}


def test_a_publication_is_one_snapshot_with_the_properties_of_its_run(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})
    plan = lake.plan("2013-02-01", "2013-02-02", "restate")
    publish_range(plan, lake.staged(plan, {"2013-02-01T06:00Z": 30, "2013-02-01T07:00Z": 40}))

    first, second = sorted(lake.table().snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)

    assert second.parent_snapshot_id == first.snapshot_id
    assert second.summary is not None
    assert second.summary.operation is Operation.OVERWRITE
    properties = second.summary.additional_properties
    assert {key: value for key, value in properties.items() if key.startswith("backstream.")} == {
        "backstream.run_id": plan.run_id,
        "backstream.since_ms": "1359676800000",
        "backstream.until_ms": "1359763200000",
        "backstream.rows": "2",
        "backstream.replaced_rows": "1",
        "backstream.changed_values": "6",
        "backstream.files": "1",
        "backstream.keys": '["carrier"]',
        "backstream.plan_hash": plan.plan_hash,
        "backstream.definition": definition_id(Path("flights.toml")),
        "backstream.definition_hash": "d1",
        "backstream.mode": "recompute",
    }


def test_manifests_do_not_pile_up_when_a_range_is_published_again_and_again(lake: Lake) -> None:
    for count in range(10):
        lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": count}, trigger=f"run{count}")

    snapshot = lake.table().current_snapshot()

    assert snapshot is not None
    # One lists the file added, one the file removed.
    assert len(snapshot.manifests(lake.table().io)) == 2
    assert lake.departures() == {"2013-02-01T05:00Z": 9}


def test_side_tables_are_appended_once_per_run_and_named_in_the_publication(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3}, metrics=[("EWR", 2), ("JFK", 1)])

    done = publish_range(plan, manifests)

    metrics = lake.table("flights__metrics").current_snapshot()
    windows = lake.table("flights").current_snapshot()
    assert metrics is not None
    assert windows is not None
    assert done.snapshots == {"": windows.snapshot_id, "metrics": metrics.snapshot_id}
    assert load_rows(lake.home, "flights__metrics").select(["source_partition", "events"]).to_pylist() == [
        {"source_partition": "EWR", "events": 2},
        {"source_partition": "JFK", "events": 1},
    ]


def test_a_run_that_died_after_its_side_tables_appends_them_only_once(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3}, metrics=[("EWR", 3)])
    with open_catalog_for_writing(lake.home) as catalog:
        staged = {suffix: check_staged_files(plan, suffix, manifests) for suffix in plan.tables}
        append_side_tables(create_tables(catalog, plan), staged)
    assert lake.departures() == {}

    done = publish_range(plan, manifests)

    assert not done.already
    assert lake.departures() == {"2013-02-01T05:00Z": 3}
    assert load_rows(lake.home, "flights__metrics").num_rows == 1


def test_a_held_table_that_another_run_changed_is_loaded_again(lake: Lake) -> None:
    plan, other = lake.plan("2013-02-01", "2013-02-02"), lake.plan("2013-02-02", "2013-02-03")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3}, metrics=[("EWR", 3)])
    others = lake.staged(other, {"2013-02-02T05:00Z": 4}, metrics=[("JFK", 4)])
    with open_catalog_for_writing(lake.home) as catalog:
        held = create_tables(catalog, plan)
        publish_range(other, others)

        appended = append_side_tables(
            held, {suffix: check_staged_files(plan, suffix, manifests) for suffix in plan.tables}
        )

    assert appended["metrics"] == lake.table("flights__metrics").current_snapshot()
    assert sorted(load_rows(lake.home, "flights__metrics")["source_partition"].to_pylist()) == ["EWR", "JFK"]


def test_a_range_of_part_of_a_day_is_refused(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02T12:00Z")

    with pytest.raises(PlanError) as caught:
        publish_range(plan, lake.staged(plan, {"2013-02-01T05:00Z": 2}))

    assert str(caught.value) == (
        "until 2013-02-02T12:00Z is not a boundary of the table's days in UTC (1d)\n"
        "\n"
        "hint: use 2013-02-02T00:00Z or 2013-02-03T00:00Z"
    )


def test_chunks_without_a_manifest_are_named(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-05")
    _, second, _, fourth = lake.staged(plan, {"2013-02-02T05:00Z": 2})

    with pytest.raises(StepError) as caught:
        publish_range(plan, [fourth, second])

    assert str(caught.value) == (
        f"run {plan.run_id} of 4 chunks: 2 left no manifest (c1, c3)"
        "\n\nhint: clear the task replay of the run with all tasks after it"
    )
    assert lake.departures() == {}


def test_a_chunk_with_two_manifests_is_named(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2})

    with pytest.raises(LedgerError) as caught:
        publish_range(plan, manifests * 2)

    assert str(caught.value) == f"run {plan.run_id} of 1 chunk: 1 left more than one manifest (c1)"


def test_a_chunk_that_is_not_in_the_plan_is_named(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2})

    with pytest.raises(LedgerError) as caught:
        publish_range(plan, [*manifests, replace(manifests[0], chunk_id="c9")])

    assert str(caught.value) == f"run {plan.run_id} of 1 chunk: 1 left a manifest but are not in the plan (c9)"


def test_a_manifest_of_another_run_is_refused(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    other = lake.plan("2013-02-01", "2013-02-02", "other")

    with pytest.raises(LedgerError) as caught:
        publish_range(plan, lake.staged(other, {"2013-02-01T05:00Z": 2}))

    assert str(caught.value) == f"the manifest of chunk c1 is of run {other.run_id}, expected {plan.run_id}"


def test_a_record_without_a_fate_stops_the_publication(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    (manifest,) = lake.staged(plan, {"2013-02-01T05:00Z": 2})
    fates = {"EWR": {"on_time": 2, "late": 1}, "JFK": {"halo": 4}}

    with pytest.raises(ContractError) as caught:
        publish_range(plan, [replace(manifest, events_read=8, fates=fates)])

    assert str(caught.value) == f"chunk c1 of run {plan.run_id} read 8 events, its fates add up to 7"
    assert lake.departures() == {}


def test_a_manifest_that_does_not_mention_a_table_is_refused(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    (manifest,) = lake.staged(plan, {"2013-02-01T05:00Z": 2})

    with pytest.raises(ContractError) as caught:
        publish_range(plan, [replace(manifest, files={"": manifest.files[""], "panes": ()})])

    assert str(caught.value) == (
        "the manifest of chunk c1 must list the files of each planned table\n"
        "  `flights__metrics` is missing\n"
        "  'panes' is not planned"
    )


def test_a_table_that_changed_since_the_plan_is_refused(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2})
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("departures")

    with pytest.raises(ContractError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "table `flights` was created or changed after this run was planned\n"
        "  departures: planned as long, field 4, found no such column\n"
        "\n"
        "hint: plan the range again"
    )


def test_every_snapshot_of_the_lineage_names_its_run(lake: Lake) -> None:
    first = lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 1})
    second = lake.publish("2013-02-02", "2013-02-03", {"2013-02-02T05:00Z": 2})

    named = [summary_property(snapshot, "backstream.run_id") for snapshot in list_ancestors(lake.table())]

    assert named == [second.run_id, first.run_id]


@pytest.mark.parametrize("name", ["flights", "flights__metrics"])
def test_a_table_that_a_newer_version_took_over_since_the_plan_is_not_written(lake: Lake, name: str) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 1}, metrics=[("EWR", 1)])
    with lake.table(name).transaction() as transaction:
        transaction.set_properties({FORMAT: str(FORMAT_VERSION + 1)})

    with pytest.raises(
        PlanError, match=f"table `{name}` has format {FORMAT_VERSION + 1}, and backstream .* reads only"
    ):
        publish_range(plan, manifests)

    assert lake.table().current_snapshot() is None


def test_a_snapshot_that_would_lack_a_staged_file_is_not_committed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lake.plan("2013-02-01", "2013-02-03")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3, "2013-02-02T05:00Z": 5})
    append, appended = snapshot_producers._SingleOverwrite.append_data_file, list[str]()  # noqa: SLF001 - a fault is put there

    def lossy(producer: Any, file: Any) -> Any:
        appended.append(file.file_path)
        return producer if len(appended) == 1 else append(producer, file)

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_producers._SingleOverwrite, "append_data_file", lossy)  # noqa: SLF001 - the same
        with pytest.raises(CountError) as caught:
            publish_range(plan, manifests)

    assert str(caught.value) == (
        "the commit to table `flights` would not match the staged files\n"
        "  added-data-files is 1 in the snapshot's summary, expected 2\n"
        "  added-records is 1 in the snapshot's summary, expected 2\n"
        "  the manifests list 1 files of 1 rows as added, expected 2 of 2\n\n"
        "hint: try again"
    )
    assert lake.departures() == {}
    assert publish_range(plan, manifests).rows == 2


PUBLICATION = {"load_table": 3, "commit_table": 2}
"""The requests for a table of windows, which is loaded again before it is prepared, and one side table."""
RESTATEMENT = {"load_table": 4, "commit_table": 3, "table_exists": 1, "create_table": 1}
"""The requests if the table of restatements is new."""


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the requests to the SQL catalog, which goes on as before; those inside of a request do not count."""
    made, depth = list[str](), [0]

    def count_requests(name: str) -> None:
        whole = getattr(SqlCatalog, name)

        def request(*arguments: Any, **options: Any) -> Any:
            made.extend([name] if not depth[0] else [])
            depth[0] += 1
            try:
                return whole(*arguments, **options)
            finally:
                depth[0] -= 1

        monkeypatch.setattr(SqlCatalog, name, request)

    for name in ("load_table", "table_exists", "commit_table", "create_table"):
        count_requests(name)
    return made


@pytest.mark.parametrize("is_restated", [False, True])
def test_a_publication_keeps_the_tables_that_it_has_loaded(
    lake: Lake, requests: list[str], *, is_restated: bool
) -> None:
    if is_restated:
        first = lake.plan("2013-02-01", "2013-02-02", trigger="first")
        publish_range(first, lake.staged(first, {"2013-02-01T05:00Z": 2}, metrics=[("EWR", 2)]))
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3}, metrics=[("EWR", 3)])
    requests.clear()

    publish_range(plan, manifests)

    assert Counter(requests) == (RESTATEMENT if is_restated else PUBLICATION)
