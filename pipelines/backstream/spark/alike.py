"""Files that Spark can read whole by one schema, told by their footers. No Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow.parquet as pq

from backstream.spark.column_types import spark_type


def alike(paths: Iterable[str]) -> list[tuple[Mapping[str, str], list[str]]]:
    """Return files in groups of the same columns, each with the Spark SQL types of these."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for path in paths:
        groups.setdefault(tuple(_columns(path).items()), []).append(path)
    return [(dict(columns), of_group) for columns, of_group in groups.items()]


def _columns(path: str) -> dict[str, str]:
    """Columns that Spark can read. Of names that differ in case only it can read none."""
    metadata = pq.read_metadata(path)
    int96 = {
        metadata.schema.column(number).path
        for number in range(metadata.num_columns)
        if metadata.schema.column(number).physical_type == "INT96"
    }
    schema = metadata.schema.to_arrow_schema()
    times = Counter(name.lower() for name in schema.names)
    kinds = {field.name: "timestamp" if field.name in int96 else spark_type(field.type) for field in schema}
    return {name: kind for name, kind in kinds.items() if kind is not None and times[name.lower()] == 1}
