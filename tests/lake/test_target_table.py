"""Publish into a table that exists already, in its layout and with its other rows."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
)
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from tests.lake.conftest import WINDOWS_TABLE

from backstream.errors import ConflictError, ContractError, PlanError
from backstream.eventtime.instants import instant_ms
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.commit import commit_snapshot
from backstream.lake.publication import range_copies
from backstream.lake.publication.publish import publish_range
from backstream.lake.publication.range_copies import plan_target, write_partitioned_files
from backstream.lake.publication.rollback import roll_back_run
from backstream.lake.publication.target_table import TargetTable
from backstream.runs.plan import Plan, definition_id

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from tests.lake.conftest import Lake

NAME = "sales.hourly"
COLUMNS = {"window_start": "hour", "run_id": "loaded_by", "carrier": "airline"}
SCHEMA = Schema(
    NestedField(1, "airline", StringType(), required=True),
    NestedField(2, "hour", TimestamptzType(), required=True),
    NestedField(3, "departures", LongType(), required=True),
    NestedField(4, "mean_delay_min", DoubleType()),
    NestedField(5, "comment", StringType()),
    NestedField(6, "loaded_by", StringType()),
)
THEIRS = {"2013-01-31T23:00Z": 7, "2013-02-01T04:00Z": 8, "2013-02-02T00:00Z": 9}
"""The departures that the table has before: one hour is in the range of the tests."""
RANGE = ("2013-02-01", "2013-02-02")


def spec(*fields: tuple[int, Transform[Any, Any]]) -> PartitionSpec:
    """Return a partition spec of source columns and transforms."""
    return PartitionSpec(
        *(
            PartitionField(source, 1000 + number, transform, f"part_{number}")
            for number, (source, transform) in enumerate(fields)
        )
    )


def make_table(
    lake: Lake,
    partitioning: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    schema: Schema = SCHEMA,
    order: SortOrder = UNSORTED_SORT_ORDER,
) -> Table:
    """Create the table of the team, with rows of its own."""
    with open_catalog_for_writing(lake.home) as catalog:
        catalog.create_namespace_if_not_exists("sales")
        table = catalog.create_table(
            NAME,
            schema,
            partition_spec=partitioning,
            properties={"owner": "sales", "write.parquet.compression-codec": "gzip"},
            sort_order=order,
        )
        append(table, THEIRS)
    return table


def append(table: Table, departures: dict[str, int]) -> None:
    """Append rows as another program does."""
    content = [
        {"airline": "AA", "hour": at(start), "departures": count, "comment": "by hand"}
        for start, count in departures.items()
    ]
    rows = pa.Table.from_pylist(content, schema=table.schema().as_arrow())
    commit_snapshot(table.refresh(), Operation.APPEND, write_partitioned_files(table, rows), [], {})


def at(text: str) -> datetime:
    return datetime.fromtimestamp(instant_ms(text, "hour") / 1_000, UTC)


def plan_copy(lake: Lake, trigger: str = "test", columns: dict[str, str] | None = None) -> Plan:
    """Return a plan with the section `[publish]`."""
    plan = lake.plan(*RANGE, trigger)
    target = TargetTable(NAME, COLUMNS if columns is None else columns)
    with open_catalog_for_writing(lake.home) as catalog:
        writer, wanted = definition_id(Path(plan.definition_path)), WINDOWS_TABLE.columns
        base = plan_target(catalog, target, wanted, writer)
    return replace(
        plan,
        definition={**plan.definition, "publish": asdict(target)},
        base_snapshots={**plan.base_snapshots, NAME: base.snapshot_id},
    )


def publish(lake: Lake, windows: dict[str, int], trigger: str = "test") -> Plan:
    plan = plan_copy(lake, trigger)
    publish_range(plan, lake.staged(plan, windows))
    return plan


def found(lake: Lake) -> list[tuple[str, str, int, str | None]]:
    """Return hour, airline, departures, and comment of all rows."""
    with open_catalog_for_writing(lake.home) as catalog:
        rows = catalog.load_table(NAME).scan().to_arrow().to_pylist()
    return sorted(
        (f"{row['hour']:%Y-%m-%dT%H:%MZ}", row["airline"], row["departures"], row["comment"]) for row in rows
    )


NEIGHBOURS = [("2013-01-31T23:00Z", "AA", 7, "by hand"), ("2013-02-02T00:00Z", "AA", 9, "by hand")]


@pytest.mark.parametrize(
    "partitioning",
    [
        UNPARTITIONED_PARTITION_SPEC,
        spec((2, DayTransform())),
        spec((2, MonthTransform())),
        spec((1, BucketTransform(4))),
        spec((1, IdentityTransform()), (2, MonthTransform())),
        spec((3, TruncateTransform(10)), (4, IdentityTransform())),
    ],
    ids=["none", "day", "month", "bucket", "identity", "truncate"],
)
def test_the_range_is_replaced_in_one_snapshot_whatever_the_partitioning(
    lake: Lake, partitioning: PartitionSpec
) -> None:
    table = make_table(lake, partitioning)

    plan = publish(lake, {"2013-02-01T05:00Z": 3, "2013-02-01T06:00Z": 4})

    assert found(lake) == [
        NEIGHBOURS[0],
        ("2013-02-01T05:00Z", "UA", 3, None),
        ("2013-02-01T06:00Z", "UA", 4, None),
        NEIGHBOURS[1],
    ]
    after = table.refresh()
    assert len(after.snapshots()) == 2
    assert (after.properties, after.spec(), after.schema()) == (table.properties, partitioning, SCHEMA)
    loaded = after.scan(row_filter="comment is null").to_arrow().to_pylist()
    assert {(row["loaded_by"], row["mean_delay_min"]) for row in loaded} == {(plan.run_id, 0.5)}
    for task in after.scan(row_filter=AlwaysTrue()).plan_files():  # each file is where its partition says
        assert task.file.spec_id == after.spec().spec_id
    assert (
        after.scan(row_filter="hour >= '2013-02-01T06:00:00+00:00' and airline == 'UA'").to_arrow().num_rows == 1
    )


def test_a_repetition_changes_nothing_and_a_new_run_replaces_the_range_again(lake: Lake) -> None:
    table = make_table(lake, spec((2, MonthTransform())))
    plan = plan_copy(lake)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    publish_range(plan, manifests)

    assert publish_range(plan, manifests).already
    assert len(table.refresh().snapshots()) == 2
    publish(lake, {"2013-02-01T08:00Z": 5}, "again")
    assert found(lake) == [NEIGHBOURS[0], ("2013-02-01T08:00Z", "UA", 5, None), NEIGHBOURS[1]]


def test_a_copy_that_failed_is_made_by_the_next_attempt(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(lake)
    plan = plan_copy(lake)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    with monkeypatch.context() as broken:
        broken.setattr(range_copies, "commit_snapshot", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish_range(plan, manifests)
    assert lake.departures() == {"2013-02-01T05:00Z": 3}
    assert len(found(lake)) == len(THEIRS)

    assert publish_range(plan, manifests).already

    assert found(lake) == [NEIGHBOURS[0], ("2013-02-01T05:00Z", "UA", 3, None), NEIGHBOURS[1]]


def test_a_rollback_restores_the_rows_of_the_run_before(lake: Lake) -> None:
    make_table(lake)
    publish(lake, {"2013-02-01T05:00Z": 3})
    wrong = publish(lake, {"2013-02-01T06:00Z": 4}, "wrong")

    roll_back_run(lake.home, wrong.run_id)
    roll_back_run(lake.home, wrong.run_id)

    assert found(lake) == [NEIGHBOURS[0], ("2013-02-01T05:00Z", "UA", 3, None), NEIGHBOURS[1]]


def test_a_rollback_of_a_run_that_was_not_copied_leaves_the_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake)
    plan = plan_copy(lake)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    with monkeypatch.context() as broken:
        broken.setattr(range_copies, "commit_snapshot", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish_range(plan, manifests)

    roll_back_run(lake.home, plan.run_id)

    assert (lake.departures(), len(found(lake)), len(table.refresh().snapshots())) == ({}, len(THEIRS), 1)


def test_a_rollback_succeeds_after_the_table_was_dropped(lake: Lake) -> None:
    make_table(lake)
    plan = publish(lake, {"2013-02-01T05:00Z": 3})
    with open_catalog_for_writing(lake.home) as catalog:
        catalog.drop_table(NAME)

    roll_back_run(lake.home, plan.run_id)

    assert lake.departures() == {}


def test_rows_that_another_program_added_to_the_range_are_a_conflict_and_nothing_is_published(lake: Lake) -> None:
    table = make_table(lake)
    plan = plan_copy(lake)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    append(table, {"2013-02-01T09:00Z": 1})

    with pytest.raises(ConflictError) as caught:
        publish_range(plan, manifests)

    assert str(caught.value) == (
        "refusing to publish flights 2013-02-01T00:00Z to 2013-02-02T00:00Z into `sales.hourly`:"
        " the table changed since it was planned\n"
        "  planned against version 1, found version 2 (append, made by another program)\n\n"
        "hint: plan the range again; nothing was published"
    )
    assert lake.departures() == {}


def test_rows_that_another_program_added_beside_the_range_stay(lake: Lake) -> None:
    table = make_table(lake)
    plan = plan_copy(lake)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 3})
    append(table, {"2013-02-02T09:00Z": 1})

    publish_range(plan, manifests)

    assert found(lake) == [
        NEIGHBOURS[0],
        ("2013-02-01T05:00Z", "UA", 3, None),
        NEIGHBOURS[1],
        ("2013-02-02T09:00Z", "AA", 1, "by hand"),
    ]


@pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin")
def test_polars_and_duckdb_read_the_table(lake: Lake) -> None:
    table = make_table(lake, spec((1, BucketTransform(4)), (2, MonthTransform())))
    publish(lake, {"2013-02-01T05:00Z": 3, "2013-02-01T06:00Z": 4})

    scanned = pl.scan_iceberg(table.refresh())
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    rows = duckdb.read_parquet(files)
    of_polars = scanned.filter(pl.col("airline") == "UA").select(pl.col("departures").sum()).collect().item()
    of_duckdb = rows.filter("airline = 'UA'").sum("departures").fetchall()
    assert (of_polars, of_duckdb, rows.shape[0]) == (7, [(7,)], 4)


def test_rows_are_sorted_as_the_table_declares(lake: Lake) -> None:
    table = make_table(lake, order=SortOrder(SortField(3, IdentityTransform())))

    publish(lake, {"2013-02-01T05:00Z": 30, "2013-02-01T06:00Z": 4})

    rows = table.refresh().scan(row_filter="airline == 'UA'").to_arrow()
    assert rows["departures"].to_pylist() == [4, 30]


def test_timestamps_without_a_zone_are_utc(lake: Lake) -> None:
    schema = schema_with(hour=TimestampType())
    with open_catalog_for_writing(lake.home) as catalog:
        catalog.create_namespace_if_not_exists("sales")
        table = catalog.create_table(NAME, schema, partition_spec=spec((2, DayTransform())))

    publish(lake, {"2013-02-01T05:00Z": 3})
    publish(lake, {"2013-02-01T06:00Z": 4}, "again")

    assert table.refresh().scan().to_arrow()["hour"].to_pylist() == [datetime(2013, 2, 1, 6)]  # noqa: DTZ001


def schema_with(*, without: str = "", **types: IcebergType) -> Schema:
    return Schema(
        *(
            NestedField(
                field.field_id, field.name, types.get(field.name, field.field_type), required=field.required
            )
            for field in SCHEMA.fields
            if field.name != without
        ),
        *(NestedField(9, name, kind, required=True) for name, kind in types.items() if name == "region"),
    )


@pytest.mark.parametrize(
    ("schema", "columns", "problem"),
    [
        (schema_with(departures=IntegerType()), COLUMNS, "departures: a long cannot be written as int"),
        (
            schema_with(without="mean_delay_min"),
            COLUMNS,
            "mean_delay_min: the table has no column `mean_delay_min`; set publish.columns.mean_delay_min",
        ),
        (
            schema_with(region=StringType()),
            COLUMNS,
            "region: the table requires a value, and no column of the result has it",
        ),
        (
            SCHEMA,
            {**COLUMNS, "window_end": "hour"},
            "hour: both window_start and window_end would be written to it",
        ),
        (SCHEMA, {**COLUMNS, "revenue": "comment"}, "publish.columns.revenue: the result has no such column"),
    ],
)
def test_a_table_that_cannot_take_the_rows_is_refused_by_the_plan(
    lake: Lake, schema: Schema, columns: dict[str, str], problem: str
) -> None:
    with open_catalog_for_writing(lake.home) as catalog:
        catalog.create_namespace_if_not_exists("sales")
        catalog.create_table(NAME, schema)

    with pytest.raises(PlanError) as caught:
        plan_copy(lake, columns=columns)

    assert str(caught.value) == f"cannot publish into table `sales.hourly`\n  {problem}"


def test_a_missing_table_is_refused_by_the_plan(lake: Lake) -> None:
    with pytest.raises(PlanError) as caught:
        plan_copy(lake)

    assert str(caught.value) == (
        "no table `sales.hourly` in the catalog (publish.table)\n\nhint: create it, or remove [publish]"
    )


def test_a_second_definition_is_refused(lake: Lake, tmp_path: Path) -> None:
    make_table(lake)
    plan = publish(lake, {"2013-02-01T05:00Z": 3})

    with open_catalog_for_writing(lake.home) as catalog, pytest.raises(PlanError) as caught:
        plan_target(
            catalog, TargetTable(NAME, COLUMNS), WINDOWS_TABLE.columns, definition_id(tmp_path / "other.toml")
        )

    assert str(caught.value) == (
        f"cannot publish into table `sales.hourly`\n  another definition publishes into it (run {plan.run_id})"
    )


def test_a_row_without_a_required_value_is_refused() -> None:
    rows = pa.table({"departures": pa.array([1, None], pa.int64())})

    with pytest.raises(ContractError) as caught:
        TargetTable(NAME).convert(rows, Schema(NestedField(1, "departures", LongType(), required=True)))

    assert str(caught.value) == ("table `sales.hourly` requires a value of departures, and 1 of 2 rows have none")
