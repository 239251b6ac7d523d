from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.transforms import DayTransform
from tests.lake.conftest import METRICS_TABLE, WINDOWS_TABLE

from backstream.errors import BackstreamError, ContractError, LedgerError, PlanError
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.publication.planned_tables import create_tables, plan_tables
from backstream.lake.publication.publish import publish_range
from backstream.lake.reader import load_rows
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import Column, Table, windows_table

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

CARRIER = Column("carrier", "string", required=True)
GROWN = windows_table(
    [CARRIER], [Column("departures", "long"), Column("mean_delay_min", "double"), Column("worst", "double")]
)
OTHERWISE_GROWN = windows_table(
    [CARRIER], [Column("departures", "long"), Column("mean_delay_min", "double"), Column("best", "double")]
)
WINDOWS = windows_table([CARRIER], [Column("departures", "long"), Column("mean_delay_min", "double")])


def create_at_once(plans: Sequence[Plan]) -> list[str]:
    """Create the tables of all plans at the same moment, and return the outcome of each plan."""
    barrier, outcomes = threading.Barrier(len(plans)), [""] * len(plans)

    def make(number: int, plan: Plan) -> None:
        barrier.wait()
        try:
            with open_catalog_for_writing(plan.home) as catalog:
                create_tables(catalog, plan)
        except BackstreamError as error:
            outcomes[number] = str(error)
        else:
            outcomes[number] = "made"

    threads = [threading.Thread(target=make, args=item) for item in enumerate(plans)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def refusal(lake: Lake, wanted: Table, dataset: str = "flights") -> str:
    with open_catalog_for_writing(lake.home) as catalog, pytest.raises(PlanError) as caught:
        plan_tables(catalog, dataset, [wanted])
    return str(caught.value)


def test_a_missing_table_is_made_with_the_types_it_should_have(lake: Lake) -> None:
    every = Table(
        "",
        (
            Column("window_start", "timestamptz", required=True),
            Column("a", "string"),
            Column("b", "long"),
            Column("c", "int"),
            Column("d", "double"),
            Column("e", "float"),
            Column("f", "boolean"),
            Column("g", "date"),
            Column("h", "decimal(12,2)"),
        ),
        day_column="window_start",
    )

    plan = lake.plan("2013-02-01", "2013-02-02", tables=[every])

    planned = plan.tables
    assert plan.base_snapshots == {"": None}
    assert planned[""].name == "flights"
    assert planned[""].location == f"{lake.home.path}/warehouse/backstream/flights"
    assert planned[""].day_column == "window_start"
    assert planned[""].columns == (
        ("window_start", "timestamptz", 1, True),
        ("a", "string", 2, False),
        ("b", "long", 3, False),
        ("c", "int", 4, False),
        ("d", "double", 5, False),
        ("e", "float", 6, False),
        ("f", "boolean", 7, False),
        ("g", "date", 8, False),
        ("h", "decimal(12,2)", 9, False),
    )
    lake.make(plan)
    table = lake.table()
    assert [(field.name, field.field_id) for field in table.schema().fields] == [
        (name, field_id) for name, _, field_id, _ in planned[""].columns
    ]
    assert f"file://{planned[''].location}" == table.location()
    assert table.format_version == 2
    (field,) = table.spec().fields
    assert (field.name, field.source_id, field.transform) == ("window_start_day", 1, DayTransform())


def test_planning_again_finds_the_same_tables_and_their_snapshots(lake: Lake) -> None:
    done = lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})

    again = lake.plan("2013-02-01", "2013-02-02", "again")

    assert again.base_snapshots == {"": done.snapshots[""], "metrics": None}
    assert again.tables["metrics"].name == "flights__metrics"
    assert again.tables["metrics"].day_column is None


def test_many_may_make_the_same_tables_at_once(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")

    assert create_at_once([plan] * 6) == ["made"] * 6

    assert lake.plan("2013-02-01", "2013-02-02").tables == plan.tables


def test_an_added_column_makes_the_table_grow_and_old_rows_lack_it(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})
    grown = windows_table([CARRIER, Column("origin", "string", required=True)], [Column("departures", "long")])

    plan = lake.plan("2013-02-01", "2013-02-02", "grown", [grown])

    assert plan.tables[""].columns == (
        ("window_start", "timestamptz", 1, True),
        ("window_end", "timestamptz", 2, True),
        ("carrier", "string", 3, True),
        ("origin", "string", 8, True),
        ("departures", "long", 4, False),
        ("record_count", "long", 6, True),
        ("run_id", "string", 7, True),
    )
    assert "origin" not in lake.table().schema().column_names
    lake.make(plan)
    assert load_rows(lake.home, "flights").select(["departures", "origin"]).to_pylist() == [
        {"departures": 3, "origin": None}
    ]


def test_a_run_planned_before_the_table_grew_can_still_be_published(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    lake.make(plan)
    lake.make(lake.plan("2013-02-01", "2013-02-02", "grown", [GROWN]))

    publish_range(plan, manifests)

    assert load_rows(lake.home, "flights").select(["departures", "worst"]).to_pylist() == [
        {"departures": 3, "worst": None}
    ]


def test_a_column_that_the_definition_dropped_stays_and_is_null_in_new_rows(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})
    fewer = windows_table([CARRIER], [Column("departures", "long")])
    plan = lake.plan("2013-02-02", "2013-02-03", tables=[fewer])
    file = lake.file(
        plan,
        "c1",
        "",
        {
            "window_start": [1359781200000000],
            "window_end": [1359784800000000],
            "carrier": ["UA"],
            "departures": [5],
            "record_count": [5],
            "run_id": [plan.run_id],
        },
    )
    (empty,) = lake.staged(plan, {})

    publish_range(plan, [replace(empty, files={"": (file,)})])

    assert load_rows(lake.home, "flights").select(["departures", "mean_delay_min"]).to_pylist() == [
        {"departures": 3, "mean_delay_min": 0.5},
        {"departures": 5, "mean_delay_min": None},
    ]


def test_a_changed_type_is_refused_with_both_types_named(lake: Lake) -> None:
    lake.make(lake.plan("2013-02-01", "2013-02-02"))
    changed = windows_table(
        [Column("carrier", "long")], [Column("departures", "double"), Column("mean_delay_min", "double")]
    )

    assert refusal(lake, changed) == (
        "table `flights` no longer fits the definition\n"
        "  carrier: expected long, found string\n"
        "  departures: expected double, found long\n"
        "\n"
        "hint: a column keeps its type; give the aggregate or the dataset another name"
    )


def test_a_required_column_that_is_no_longer_wanted_or_no_longer_required_is_refused(lake: Lake) -> None:
    lake.make(lake.plan("2013-02-01", "2013-02-02"))

    assert refusal(lake, windows_table([], [Column("departures", "long")])) == (
        "table `flights` no longer fits the definition\n"
        "  carrier: expected no such column, found required string\n"
        "\n"
        "hint: a column keeps its type; give the aggregate or the dataset another name"
    )
    assert refusal(lake, windows_table([Column("carrier", "string")], [])) == (
        "table `flights` no longer fits the definition\n"
        "  carrier: expected string, found required string\n"
        "\n"
        "hint: a column keeps its type; give the aggregate or the dataset another name"
    )


def test_a_table_with_other_partitioning_is_rejected(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    lake.make(plan)
    lake.table().update_spec().remove_field("window_start_day").commit()

    with pytest.raises(ContractError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "table `flights` was created or changed after this run was planned\n"
        "  planned to be partitioned by day(window_start), found nothing\n"
        "\n"
        "hint: plan the range again"
    )
    assert refusal(lake, WINDOWS) == (
        "table `flights` no longer fits the definition\n"
        "  partitioned by: expected day(window_start), found nothing\n"
        "\n"
        "hint: a column keeps its type; give the aggregate or the dataset another name"
    )


def test_a_dataset_cannot_take_the_name_of_a_shared_table(lake: Lake) -> None:
    assert (
        refusal(lake, WINDOWS, "runs")
        == "a dataset cannot have the name `runs`: all datasets share a table of this name"
    )


def test_a_type_that_the_lake_does_not_know_is_refused(lake: Lake) -> None:
    assert refusal(lake, Table("", (Column("a", "map"),))) == (
        "column type must be one of string, long, int, double, float, boolean, date, timestamptz,"
        " decimal(p,s) or list<..>, got 'map'"
    )


def test_a_plan_writes_nothing_and_reads_a_catalog_that_is_not_there_as_an_empty_one(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")

    assert plan.tables[""].columns[-1] == ("run_id", "string", 7, True)
    assert not lake.home.path.exists()


def test_a_plan_leaves_tables_and_catalog_as_they_are(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})
    before = contents(lake.home.path)

    lake.plan("2013-02-01", "2013-02-02", "grown", [GROWN, METRICS_TABLE])

    assert contents(lake.home.path) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_two_runs_planned_before_the_first_publication_are_both_published(lake: Lake) -> None:
    plans = [lake.plan("2013-02-01", "2013-02-02", "one"), lake.plan("2013-02-02", "2013-02-03", "two")]

    for plan, start in zip(plans, ("2013-02-01T05:00Z", "2013-02-02T05:00Z"), strict=True):
        publish_range(plan, lake.staged(plan, {start: 3}))

    assert lake.departures() == {"2013-02-01T05:00Z": 3, "2013-02-02T05:00Z": 3}


def test_of_two_first_runs_with_other_aggregates_the_second_is_refused_unstaged(
    lake: Lake,
) -> None:
    one = lake.plan("2013-02-01", "2013-02-02", "one")
    two = lake.plan("2013-02-02", "2013-02-03", "two", [GROWN, METRICS_TABLE])
    publish_range(one, lake.staged(one, {"2013-02-01T05:00Z": 3}))
    before = contents(lake.home.path)

    with pytest.raises(ContractError) as caught:
        lake.make(two)

    assert str(caught.value) == (
        "table `flights` was created or changed after this run was planned\n"
        "  worst: planned as double, field 6, found no such column, and field 6 is record_count\n"
        "  record_count: planned as long, field 7, found long, field 6\n"
        "  run_id: planned as string, field 8, found string, field 7\n"
        "\n"
        "hint: plan the range again"
    )
    assert contents(lake.home.path) == before
    again = lake.plan("2013-02-02", "2013-02-03", "again", [GROWN, METRICS_TABLE])
    lake.make(again)
    assert lake.table().schema().find_field("worst").field_id == 8


def test_of_two_runs_that_add_other_columns_the_second_is_refused_and_adds_none(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})
    one = lake.plan("2013-02-02", "2013-02-03", "one", [GROWN])
    two = lake.plan("2013-02-03", "2013-02-04", "two", [OTHERWISE_GROWN])

    outcomes = create_at_once([one, two])

    winner = outcomes.index("made")
    new, taken = [("best", "worst"), ("worst", "best")][winner]
    assert outcomes[1 - winner] == (
        "table `flights` was created or changed after this run was planned\n"
        f"  {new}: planned as double, field 8, found no such column, and field 8 is {taken}\n"
        "\n"
        "hint: plan the range again"
    )
    assert new not in lake.table().schema().column_names


def test_runs_that_add_the_same_column_share_it(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})
    plans = [lake.plan("2013-02-02", "2013-02-03", name, [GROWN]) for name in ("one", "two")]

    assert create_at_once(plans) == ["made"] * 2

    assert lake.table().schema().find_field("worst").field_id == 8


def test_a_required_column_added_after_planning_is_rejected(lake: Lake) -> None:
    side = Table("side", (Column("a", "long"),))
    plan = lake.plan("2013-02-01", "2013-02-02", tables=[WINDOWS, side])
    more = Table("side", (Column("a", "long"), Column("b", "long", required=True)))
    lake.make(lake.plan("2013-02-01", "2013-02-02", "more", [WINDOWS, more]))

    with pytest.raises(ContractError) as caught:
        lake.make(plan)

    assert str(caught.value) == (
        "table `flights__side` was created or changed after this run was planned\n"
        "  b: not planned, found required long\n"
        "\n"
        "hint: plan the range again"
    )


def test_a_table_that_existed_when_a_run_was_planned_is_not_created_again(lake: Lake) -> None:
    lake.make(lake.plan("2013-02-01", "2013-02-02"))
    lake.make(lake.plan("2013-02-01", "2013-02-02", "grown", [GROWN]))
    plan = lake.plan("2013-02-01", "2013-02-02", "again")
    grown = lake.plan("2013-02-01", "2013-02-02", "again", [GROWN])
    lake.drop()

    lake.make(plan)  # possible because nothing was published, so that the new table has the planned field ids
    lake.drop()
    with pytest.raises(ContractError) as caught:
        lake.make(grown)

    assert str(caught.value) == (
        "table `flights` is missing: it existed when this run was planned\n"
        f"  planned at {lake.home.path}/warehouse/backstream/flights\n"
        "\n"
        "hint: plan the range again"
    )


def test_a_missing_table_of_published_rows_is_not_created_again(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})
    plan = lake.plan("2013-02-01", "2013-02-02", "again")
    lake.drop()

    with pytest.raises(LedgerError) as caught:
        publish_range(plan, lake.staged(plan, {"2013-02-01T05:00Z": 4}))

    assert str(caught.value) == (
        f"no table `flights` in the lake (sqlite:///{lake.home.path}/catalog.db?timeout=60)"
    )


def test_a_new_table_declares_its_order_and_describes_itself_without_paths_of_this_machine(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    aggregates = {"departures": "count(*)", "mean_delay_min": "avg(dep_delay)"}
    described = {**plan.definition, "description": "Departures by hour", "aggregates": aggregates}
    lake.make(replace(plan, definition=described))

    table = lake.table()

    assert [*table.sort_orders()] == [0, 1]  # Spark writes files of other orders with order 0, which must exist
    order = [table.schema().find_column_name(field.source_id) for field in table.sort_order().fields]
    assert order == ["window_start", "carrier"]
    assert {field.name: field.doc for field in table.schema().fields} == {
        "window_start": "start of the window, inclusive",
        "window_end": "end of the window, exclusive",
        "carrier": "key",
        "departures": "count(*)",
        "mean_delay_min": "avg(dep_delay)",
        "record_count": "number of records behind the row",
        "run_id": "run that wrote the row",
    }
    assert table.properties["comment"] == "Departures by hour"
    assert "/" not in "".join(table.properties.values())


def test_a_column_that_is_added_later_has_a_comment_too(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 1})
    wider = replace(WINDOWS_TABLE, columns=(*WINDOWS_TABLE.columns, Column("total_delay_min", "double")))
    plan = lake.plan("2013-02-02", "2013-02-03", tables=[wider, METRICS_TABLE])
    lake.make(replace(plan, definition={**plan.definition, "aggregates": {"total_delay_min": "sum(dep_delay)"}}))

    assert lake.table().schema().find_field("total_delay_min").doc == "sum(dep_delay)"
