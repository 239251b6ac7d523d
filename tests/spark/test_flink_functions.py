"""Compare the values of translated functions of Flink SQL with those that Flink's documentation and code give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlglot import exp

from backstream.definition.flink_sql.expressions import Expressions, SqlValue
from backstream.definition.flink_sql.queries import QueryReader, Relation
from backstream.definition.flink_sql.script import FlinkScript, ScriptText

TABLE = """CREATE TABLE t (i INT, j INT, l BIGINT, d DOUBLE, m DECIMAL(10, 2), s STRING, n STRING, b BOOLEAN,
  ts TIMESTAMP(3), day DATE, r ROW<a INT, b STRING>) WITH ('connector' = 'kafka');
CREATE VIEW v AS SELECT {} AS e FROM t"""
ROW = (
    "-7 i, 2 j, 5000000000L l, 2.5D d, cast(12.345 as decimal(10, 2)) m, 'Straße_10' s, cast(null as string) n,"
    " true b,"
    " timestamp '2026-03-02 08:05:06.789' ts, date '2026-03-02' day, named_struct('a', 4, 'b', 'x') r"
)
VALUES: Mapping[str, Any] = {
    "i / j": -3,
    "i % j": -1,
    "MOD(l, 7)": 2,
    "l / 3": 1_666_666_666,
    "i + l": 4_999_999_993,
    "d / j": 1.25,
    "m * 2": Decimal("24.70"),
    "m / 4": Decimal("3.0875000000000"),
    "m + m": Decimal("24.70"),
    "ROUND(m, 1)": Decimal("12.4"),
    "ROUND(d)": 3.0,
    "FLOOR(m)": Decimal(12),
    "CEIL(m)": Decimal(13),
    "ABS(i)": 7,
    "-i": 7,
    "CAST(d AS INT)": 2,
    "CAST(m AS DECIMAL(10, 1))": Decimal("12.4"),
    "CAST('12' AS INT) + 1": 13,
    "CAST(i AS STRING) || 'x'": "-7x",
    "CAST(m AS STRING)": "12.35",
    "UPPER(s)": "STRASSE_10",
    "LOWER(s)": "straße_10",
    "CHAR_LENGTH(s)": 9,
    "SUBSTRING(s, 2, 3)": "tra",
    "SUBSTRING(s FROM 8)": "10",
    "CONCAT(s, n)": None,
    "CONCAT_WS('-', 'a', n, 'b')": "a-b",
    "SPLIT_INDEX(s, '_', 1)": "10",
    "SPLIT_INDEX(s, '_', 2)": None,
    "SPLIT_INDEX('', '_', 0)": None,
    "TRIM('  a ')": "a",
    "s LIKE 'Stra_e%'": True,
    "s NOT LIKE '%10'": False,
    r"'a\b' = 'a\b'": True,
    "COALESCE(n, s)": "Straße_10",
    "COALESCE(d, 0)": 2.5,
    "NULLIF(j, 2)": None,
    "IF(b, 1, 2)": 1,
    "CASE WHEN n IS NULL THEN 'no' WHEN b THEN 'yes' END": "no",
    "n = 'x'": None,
    "n IS DISTINCT FROM 'x'": True,
    "i BETWEEN -8 AND -6 AND NOT j IN (3, 4)": True,
    "b IS NOT TRUE": False,
    "r.a + 1": 5,
    "HOUR(ts)": 8,
    "EXTRACT(SECOND FROM ts)": 6,
    "DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm')": "2026-03-02 08:05",
    "ts + INTERVAL '90' MINUTE": datetime(2026, 3, 2, 9, 35, 6, 789000, UTC),
    "ts > TIMESTAMP '2026-03-02 08:05:06.788'": True,
    "day = DATE '2026-03-02'": True,
    "CAST(ts AS DATE) = day": True,
    "CAST(ts AS TIMESTAMP(0))": datetime(2026, 3, 2, 8, 5, 6, tzinfo=UTC),
    "CAST('2026-03-02 08:05:06.789123' AS TIMESTAMP(3))": datetime(2026, 3, 2, 8, 5, 6, 789000, UTC),
    "TO_TIMESTAMP_LTZ(l, 3)": datetime(1970, 2, 27, 20, 53, 20, tzinfo=UTC),
    "TO_TIMESTAMP('03/02/2026 01:02:03', 'MM/dd/yyyy HH:mm:ss')": datetime(2026, 3, 2, 1, 2, 3, tzinfo=UTC),
}
"""The value of each expression in the row."""


def translate(text: str) -> SqlValue:
    script = FlinkScript.read(ScriptText(TABLE.format(text), "functions.sql"))
    relation = QueryReader(script).read(script.views["v"])
    assert isinstance(relation, Relation)

    def column(_node: exp.Expr, path: Sequence[str]) -> SqlValue:
        kind = relation.table.columns[path[0]].kind
        for name in path[1:]:
            kind = dict(kind.fields)[name] if kind else None
        assert kind is not None
        return SqlValue(".".join(path), kind)

    return Expressions(script.source, column).of(relation.columns["e"])


@pytest.fixture(scope="module")
def computed(spark: SparkSession) -> Mapping[str, tuple[Any, str]]:
    """Return the value and the type of each expression, from one job."""
    row = spark.sql(f"SELECT {ROW}")
    calls = [f"({translate(text).sql}) AS e{number}" for number, text in enumerate(VALUES)]
    table = row.selectExpr(*calls).toArrow()
    types = [field.dataType.simpleString() for field in row.selectExpr(*calls).schema]
    return {text: (table[number][0].as_py(), types[number]) for number, text in enumerate(VALUES)}


@pytest.mark.parametrize("text", VALUES)
def test_a_function_has_the_value_of_flink(computed: Mapping[str, tuple[Any, str]], text: str) -> None:
    assert computed[text][0] == VALUES[text]


def test_a_function_has_the_type_of_flink(computed: Mapping[str, tuple[Any, str]]) -> None:
    different = {
        text: (kind, found)
        for text, (_, found) in computed.items()
        if (kind := str(translate(text).kind.spark).replace(" ", "")) not in (found, "None")
    }
    assert different == {}
