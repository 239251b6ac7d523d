"""Types and aggregates that the native engine knows, by their Spark SQL names."""

from __future__ import annotations

import re
from dataclasses import dataclass

TIMES = {"timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP"}
INTEGERS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}
FLOATING = {"float": "FLOAT", "double": "DOUBLE"}
GROUPED = {**INTEGERS, "string": "VARCHAR", "date": "DATE", "boolean": "BOOLEAN"}
"""What records may be grouped by, besides decimals."""
DECIMAL = re.compile(r"decimal\(\d+,\d+\)")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of the whitelist: `function` of a source column; of none, `count(*)`."""

    name: str
    function: str
    column: str | None


def duckdb_type(kind: str) -> str | None:
    """Return DuckDB's name of a Spark SQL type; None for one that the engine does not read."""
    known = {**TIMES, **GROUPED, **FLOATING}
    return known.get(kind) or (kind.upper() if DECIMAL.fullmatch(kind) else None)
