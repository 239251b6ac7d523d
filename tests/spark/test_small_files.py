"""Test that files split by the driver equal those of Spark's `partitionBy`."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backstream.native.small_files import split_files

NAMES = ["chunk", "day"]
ROWS = pa.table(
    {
        "key": ["a", None, "b", "a", "ä"],
        "start": pa.array([datetime(1969, 12, 31, 23, tzinfo=UTC), *[datetime(2024, 3, 1, tzinfo=UTC)] * 4]),
        "price": pa.array(
            [Decimal("1.10"), None, Decimal("-3.00"), Decimal("0.01"), Decimal(2)], pa.decimal128(9, 2)
        ),
        "wide": pa.array([Decimal(number) for number in range(5)], pa.decimal128(30, 4)),
        "tags": [["x"], [], None, ["y", None], ["z"]],
        "ratio": pa.array([0.5, float("nan"), None, -0.0, 1.0]),
        "chunk": pa.array([0, 1, 0, 1, 1], pa.int32()),
        "day": [date(1969, 12, 31), date(2024, 3, 1), date(2024, 3, 1), date(2024, 3, 1), date(2024, 3, 1)],
    }
)


def test_the_folders_rows_types_and_field_ids_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    ids = {
        name: F.col(name).alias(name, metadata={"parquet.field.id": at})
        for at, name in enumerate(ROWS.column_names, 1)
    }
    rows = spark.createDataFrame(ROWS).select(*ids.values()).coalesce(1)
    rows.write.partitionBy(*NAMES).parquet(str(tmp_path / "spark"))
    rows.sortWithinPartitions(*NAMES).write.parquet(str(tmp_path / "split"))

    split_files(tmp_path / "split", NAMES)

    expected, result = (_files(tmp_path / results) for results in ("spark", "split"))
    assert len(expected) == 3
    assert result.keys() == expected.keys()
    for folder, file in expected.items():
        assert result[folder].schema.to_arrow_schema().equals(file.schema.to_arrow_schema())
        assert _physical(result[folder]) == _physical(file)
        assert repr(_rows(tmp_path / "split" / folder)) == repr(_rows(tmp_path / "spark" / folder))


def _files(folder: Path) -> dict[str, pq.FileMetaData]:
    return {str(path.parent.relative_to(folder)): pq.read_metadata(path) for path in folder.rglob("*.parquet")}


def _physical(file: pq.FileMetaData) -> list[tuple[str, str, str]]:
    columns = [file.schema.column(number) for number in range(file.num_columns)]
    return [(each.path.partition(".")[0], each.physical_type, str(each.logical_type)) for each in columns]


def _rows(folder: Path) -> list[str]:
    (path,) = folder.glob("*.parquet")
    return sorted(map(repr, pq.ParquetFile(path).read().to_pylist()))
