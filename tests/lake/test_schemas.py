from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyiceberg.transforms import DayTransform

from backstream.core.errors import ContractError, PlanError
from backstream.core.tables import Column, Table, windows_table
from backstream.lake.catalog import opened
from backstream.lake.publish import publish
from backstream.lake.read import rows
from backstream.lake.schemas import prepared

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

CARRIER = Column("carrier", "string", required=True)
WINDOWS = windows_table([CARRIER], [Column("departures", "long"), Column("mean_delay_min", "double")])


def refusal(lake: Lake, wanted: Table, dataset: str = "flights") -> str:
    with opened(lake.home) as catalog, pytest.raises(PlanError) as caught:
        prepared(catalog, dataset, [wanted])
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

    with opened(lake.home) as catalog:
        planned, bases = prepared(catalog, "flights", [every])

    assert bases == {"": None}
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
    table = lake.table()
    assert table.format_version == 2
    (field,) = table.spec().fields
    assert (field.name, field.source_id, field.transform) == ("window_start_day", 1, DayTransform())


def test_preparing_again_finds_the_same_tables_and_their_snapshots(lake: Lake) -> None:
    done = lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})

    again = lake.plan("2013-02-01", "2013-02-02", "again")

    assert again.base_snapshots == {"": done.snapshots[""], "metrics": None}
    assert again.tables["metrics"].name == "flights__metrics"
    assert again.tables["metrics"].day_column is None


def test_many_may_prepare_the_same_tables_at_once(lake: Lake) -> None:
    barrier, found = threading.Barrier(6), []

    def prepare() -> None:
        barrier.wait()
        with opened(lake.home) as catalog:
            found.append(prepared(catalog, "flights", [WINDOWS])[0][""])

    threads = [threading.Thread(target=prepare) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [found[0]] * 6


def test_an_added_column_makes_the_table_grow_and_old_rows_lack_it(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})
    grown = windows_table([CARRIER, Column("origin", "string", required=True)], [Column("departures", "long")])

    with opened(lake.home) as catalog:
        planned, _ = prepared(catalog, "flights", [grown])

    assert planned[""].columns == (
        ("window_start", "timestamptz", 1, True),
        ("window_end", "timestamptz", 2, True),
        ("carrier", "string", 3, True),
        ("origin", "string", 8, True),
        ("departures", "long", 4, False),
        ("record_count", "long", 6, True),
        ("run_id", "string", 7, True),
    )
    assert rows(lake.home, "flights").select(["departures", "origin"]).to_pylist() == [
        {"departures": 3, "origin": None}
    ]


def test_a_run_planned_before_the_table_grew_can_still_be_published(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    with opened(lake.home) as catalog:
        prepared(catalog, "flights", [replace(WINDOWS, columns=(*WINDOWS.columns, Column("worst", "double")))])

    publish(plan, manifests)

    assert rows(lake.home, "flights").select(["departures", "worst"]).to_pylist() == [
        {"departures": 3, "worst": None}
    ]


def test_a_column_that_is_no_longer_wanted_stays_and_is_null_in_new_rows(lake: Lake) -> None:
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

    publish(plan, [replace(empty, files={"": (file,)})])

    assert rows(lake.home, "flights").select(["departures", "mean_delay_min"]).to_pylist() == [
        {"departures": 3, "mean_delay_min": 0.5},
        {"departures": 5, "mean_delay_min": None},
    ]


def test_a_changed_type_is_refused_with_both_types_named(lake: Lake) -> None:
    lake.plan("2013-02-01", "2013-02-02")
    changed = windows_table(
        [Column("carrier", "long")], [Column("departures", "double"), Column("mean_delay_min", "double")]
    )

    assert refusal(lake, changed) == (
        "table `flights` does not fit the definition any more\n"
        "  carrier: expected long, found string\n"
        "  departures: expected double, found long\n"
        "\n"
        "hint: a column keeps its type; give the aggregate or the dataset another name"
    )


def test_a_required_column_that_is_no_longer_wanted_or_no_longer_required_is_refused(lake: Lake) -> None:
    lake.plan("2013-02-01", "2013-02-02")

    assert refusal(lake, windows_table([], [Column("departures", "long")])) == (
        "table `flights` does not fit the definition any more\n"
        "  carrier: expected no such column, found required string\n"
        "\n"
        "hint: a column keeps its type; give the aggregate or the dataset another name"
    )
    assert refusal(lake, windows_table([Column("carrier", "string")], [])) == (
        "table `flights` does not fit the definition any more\n"
        "  carrier: expected string, found required string\n"
        "\n"
        "hint: a column keeps its type; give the aggregate or the dataset another name"
    )


def test_a_table_that_was_partitioned_otherwise_is_refused(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-02")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    lake.table().update_spec().remove_field("window_start_day").commit()

    with pytest.raises(ContractError) as caught:
        publish(plan, manifests)

    assert str(caught.value) == (
        "table `flights` is not the one this run was planned for\n"
        "  planned to be partitioned by day(window_start), found nothing\n"
        "\n"
        "hint: plan the range again"
    )
    assert refusal(lake, WINDOWS) == (
        "table `flights` does not fit the definition any more\n"
        "  partitioned by: expected day(window_start), found nothing\n"
        "\n"
        "hint: a column keeps its type; give the aggregate or the dataset another name"
    )


def test_a_dataset_cannot_take_the_name_of_a_shared_table(lake: Lake) -> None:
    assert (
        refusal(lake, WINDOWS, "runs") == "a dataset cannot be called `runs`: that is a table all datasets share"
    )


def test_a_type_that_the_lake_does_not_know_is_refused(lake: Lake) -> None:
    assert refusal(lake, Table("", (Column("a", "map"),))) == (
        "column type must be one of string, long, int, double, float, boolean, date, timestamptz"
        " or decimal(p,s), got 'map'"
    )
