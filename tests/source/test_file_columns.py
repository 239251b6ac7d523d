"""Test the columns of the input files of a plan."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.source.days import refusal, write_days
from tests.workflow.history import CLICKS, COLUMNS, at, planned, write_clicks, write_definition

from backstream.errors import ContractError, PlanError
from backstream.runs.input_files import FileList
from backstream.runs.input_notes import describe_inputs


def test_unused_columns_may_change_their_type_or_be_missing(tmp_path: Path) -> None:
    row = (at("1 05:00"), at("1 05:01"), "A", 0, "home")
    kinds = [pa.int64(), pa.string(), pa.timestamp("ns"), pa.time64("us"), pa.list_(pa.int8())]
    for number, kind in enumerate(kinds):
        write_clicks(tmp_path / f"data/{number}.parquet", [(*row, None)], {**COLUMNS, "extra": kind})
    write_clicks(tmp_path / "data/9.parquet", [row])

    plan = planned(tmp_path, write_definition(tmp_path))

    assert len(plan.chunks[0].files) == 6
    assert dict(plan.columns) == {
        "arrived_at": "timestamp",
        "happened_at": "timestamp",
        "origin": "string",
        "page": "string",
        "seq": "bigint",
    }


@pytest.mark.parametrize(
    ("first", "second", "wide"),
    [
        (pa.int32(), pa.int64(), "bigint"),
        (pa.int8(), pa.int16(), "smallint"),
        (pa.int16(), pa.int32(), "int"),
        (pa.uint32(), pa.int32(), "bigint"),
        (pa.float32(), pa.float64(), "double"),
        (pa.decimal128(5, 2), pa.decimal128(12, 2), "decimal(12,2)"),
        (pa.date32(), pa.date32(), "date"),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Zurich"), "timestamp"),
        (pa.string(), pa.dictionary(pa.int8(), pa.large_string()), "string"),
    ],
)
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_used_column_has_the_type_that_holds_all_its_values(
    tmp_path: Path, first: pa.DataType, second: pa.DataType, wide: str, *, is_turned: bool
) -> None:
    for name, kind in zip("ba" if is_turned else "ab", (first, second), strict=True):
        row = (at("1 05:00"), at("1 05:01"), "A", 0, "home", None)
        write_clicks(tmp_path / f"data/{name}.parquet", [row], {**COLUMNS, "amount": kind})
    text = CLICKS.replace('key = ["page"]', 'key = ["page", "amount"]')

    plan = planned(tmp_path, write_definition(tmp_path, text))

    assert plan.columns["amount"] == wide
    iceberg = {"bigint": "long", "smallint": "int", "timestamp": "timestamptz", "decimal(12,2)": "decimal(12, 2)"}
    types = {name: kind for name, kind, *_ in plan.tables[""].columns}
    assert types["amount"].replace(" ", "") == iceberg.get(wide, wide).replace(" ", "")


@pytest.mark.parametrize(
    ("first", "second", "types", "united"),
    [
        (pa.int64(), pa.string(), ("bigint", "string"), None),
        (pa.int64(), pa.float64(), ("bigint", "double"), "double"),
        (pa.decimal128(5, 2), pa.decimal128(5, 1), ("decimal(5,2)", "decimal(5,1)"), "decimal(6,2)"),
        (pa.int32(), pa.decimal128(5, 1), ("int", "decimal(5,1)"), "decimal(11,1)"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), ("timestamp_ntz", "timestamp"), None),
        (pa.string(), pa.null(), ("string", "void"), "string"),
    ],
)
def test_a_used_column_without_a_common_type_is_rejected_with_both_files(
    tmp_path: Path, first: pa.DataType, second: pa.DataType, types: tuple[str, str], united: str | None
) -> None:
    hint = 'declare its type, e.g., columns = { "amount" = "string" } in [source]'
    if united:
        hint = f"set source.prepare = true, so that the values of both become {united}"
    for name, kind in (("a", first), ("b", first), ("c", second)):
        row = (at("1 05:00"), at("1 05:01"), "A", 0, "home", None)
        write_clicks(tmp_path / f"data/{name}.parquet", [row], {**COLUMNS, "amount": kind})

    assert refusal(tmp_path, PlanError, CLICKS.replace('key = ["page"]', 'key = ["amount"]')) == (
        "column 'amount' has two types in the files, and no type holds the values of both"
        f"\n  {types[0]} in FOLDER/data/a.parquet\n  {types[1]} in FOLDER/data/c.parquet\n\nhint: {hint}"
    )


def test_a_used_column_that_some_files_lack_is_null_there_and_listed(tmp_path: Path) -> None:
    write_days(tmp_path, 1, 2)
    without_page = {name: kind for name, kind in COLUMNS.items() if name != "page"}
    write_clicks(tmp_path / "data/0.parquet", [(at("1 04:00"), at("1 04:01"), "A", 7)], without_page)

    plan = planned(tmp_path, write_definition(tmp_path))

    assert plan.absent == {"page": FileList(1, (f"{tmp_path}/data/0.parquet",))}
    assert describe_inputs(plan) == [
        ("Null", f"column 'page' is not in 1 file and null there: {tmp_path}/data/0.parquet")
    ]


def test_columns_that_differ_only_in_case_are_rejected(tmp_path: Path) -> None:
    write_days(tmp_path, 1)
    write_clicks(
        tmp_path / "data/b.parquet",
        [(at("1 05:00"), at("1 05:01"), "A", 0, "home")],
        {("Page" if name == "page" else name): kind for name, kind in COLUMNS.items()},
    )

    assert refusal(tmp_path, PlanError) == (
        "column 'page' is also written 'Page'; Spark does not distinguish them (FOLDER/data/b.parquet)"
    )


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (
            "happened_at",
            pa.timestamp("us"),
            (
                "source.event_time must be an instant, got timestamp_ntz from 'happened_at' (FOLDER/clicks.toml)"
                "\n\nhint: use to_utc_timestamp(cast(happened_at as timestamp), 'America/New_York')"
            ),
        ),
        (
            "arrived_at",
            pa.timestamp("us"),
            (
                "source.arrival_time must be an instant, got timestamp_ntz from 'arrived_at' (FOLDER/clicks.toml)"
                "\n\nhint: use to_utc_timestamp(cast(arrived_at as timestamp), 'America/New_York')"
            ),
        ),
        (
            "happened_at",
            pa.int64(),
            (
                "source.event_time must be an instant, got bigint from 'happened_at' (FOLDER/clicks.toml)\n\n"
                "hint: use timestamp_millis(happened_at) or timestamp_seconds(happened_at)"
            ),
        ),
        (
            "happened_at",
            pa.float64(),
            "source.event_time must be an instant, got double from 'happened_at' (FOLDER/clicks.toml)",
        ),
    ],
)
def test_a_time_column_without_instants_is_rejected_with_a_hint(
    tmp_path: Path, column: str, kind: pa.DataType, message: str
) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(None, None, "A", 0, "home")], {**COLUMNS, column: kind})

    assert refusal(tmp_path, ContractError) == message


def test_nanoseconds_are_rejected_since_spark_reads_them_as_numbers(tmp_path: Path) -> None:
    row = (at("1 05:00"), at("1 05:01"), "A", 0, "home")
    write_clicks(tmp_path / "data/a.parquet", [row], {**COLUMNS, "happened_at": pa.timestamp("ns", "UTC")})

    assert refusal(tmp_path, PlanError) == (
        "column 'happened_at' is a timestamp in nanoseconds, which Spark reads as a number only"
        " (FOLDER/data/a.parquet)\n\nhint: write microseconds; in pyarrow, use coerce_timestamps='us'"
    )


@pytest.mark.parametrize(
    ("kind", "name"), [(pa.time64("us"), "time64[us]"), (pa.decimal256(50, 2), "decimal256(50, 2)")]
)
def test_a_used_column_that_spark_cannot_read_is_rejected(kind: pa.DataType, name: str, tmp_path: Path) -> None:
    row = (at("1 05:00"), at("1 05:01"), "A", 0, None)
    write_clicks(tmp_path / "data/a.parquet", [row], {**COLUMNS, "page": kind})

    assert refusal(tmp_path, PlanError) == (
        f"column 'page' is of a type that Spark cannot read: {name} (FOLDER/data/a.parquet)"
    )


def test_an_int96_column_of_spark_is_an_instant(tmp_path: Path) -> None:
    table = pa.table({name: pa.array([], kind) for name, kind in COLUMNS.items()})
    write_days(tmp_path, 1)
    rows = pq.read_table(tmp_path / "data/1.parquet")
    pq.write_table(rows, tmp_path / "data/1.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(table, tmp_path / "data/2.parquet")

    plan = planned(tmp_path, write_definition(tmp_path))

    assert (plan.columns["happened_at"], plan.chunks[0].files) == ("timestamp", (0,))


def test_decimals_keep_their_digits(tmp_path: Path) -> None:
    for name, digits in (("a", 5), ("b", 12)):
        row = (at("1 05:00"), at("1 05:01"), "A", 0, "home", Decimal("1.25"))
        write_clicks(tmp_path / f"data/{name}.parquet", [row], {**COLUMNS, "amount": pa.decimal128(digits, 2)})
    text = CLICKS.replace('clicks = "count(*)"', 'total = "sum(amount)"')

    plan = planned(tmp_path, write_definition(tmp_path, text))

    assert ("total", "decimal(22,2)") in [column[:2] for column in plan.tables[""].columns]
