"""A script of Flink SQL gives the content of a definition, or is refused with the line and the column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backstream.definition.flink_sql.script import ScriptText
from backstream.definition.flink_sql.translation import expand_script
from backstream.definition.loader import load_definition, parse_definition
from backstream.errors import SpecError

ORDERS = """CREATE TABLE orders (
  shop STRING,
  amount DECIMAL(10, 2),
  items INT,
  price DOUBLE,
  customer ROW<id BIGINT, country STRING>,
  tags ARRAY<STRING>,
  at_ms BIGINT,
  kafka_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  at AS TO_TIMESTAMP_LTZ(at_ms, 3),
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json');
"""
WINDOW = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR))"
ARCHIVE = {
    "path": "archive/*.json",
    "format": "json",
    "arrival_time": "arrival_ms",
    "arrival_time_unit": "ms",
    "partition": "partition",
    "sequence": "offset",
    "columns": {"partition": "int", "offset": "bigint", "arrival_ms": "bigint"},
}

OTHER_SOURCE = "is not possible: its rows change, or its watermarks have other rules"


def expand(script: str, **section: str) -> dict[str, Any]:
    content = {
        "name": "orders",
        "flink_sql": {"script": "job.sql", "value": "value", **section},
        "source": ARCHIVE,
    }
    found = dict(expand_script(content, ScriptText(script, "job.sql"), "orders.toml").content)
    parse_definition(found, "orders.toml")
    return found


def of_query(query: str, before: str = "") -> dict[str, Any]:
    return expand(f"{before}{ORDERS}INSERT INTO sink {query};")


def test_a_script_becomes_the_content_of_a_definition() -> None:
    content = of_query(
        "SELECT window_start, shop, COUNT(*) AS orders, SUM(amount) AS revenue, AVG(items) AS mean_items"
        f" FROM {WINDOW} WHERE customer.country <> 'DE' AND items > 0"
        " GROUP BY shop, window_start, window_end HAVING SUM(amount) > 10"
    )
    assert content["source"] == {
        **ARCHIVE,
        "event_time": "value.at_ms",
        "event_time_unit": "ms",
        "key": ["shop"],
        "derive": {
            "shop": "value.shop",
            "items": "value.items",
            "amount": "cast(value.amount as decimal(10, 2))",
        },
        "columns": {
            **ARCHIVE["columns"],  # type: ignore[dict-item]
            "value": "struct<shop: string, customer: struct<id: bigint, country: string>, items: int,"
            " amount: string, at_ms: bigint>",
        },
    }
    assert content["watermark"] == {"strategy": "flink_sql", "delay": "5s"}
    assert content["window"] == {"kind": "tumbling", "size": "1h"}
    assert content["filter"] == {"where": "value.customer.country <> 'DE' and items > 0"}
    assert content["aggregates"] == {
        "orders": "count(*)",
        "revenue": "sum(amount)",
        "mean_items": "cast(sum(items) div count(items) as int)",
    }
    assert content["having"] == {"condition": "revenue > 10"}
    assert content["backfill"] == {"mode": "replay", "publish": "live"}
    assert "lateness" not in content


@pytest.mark.parametrize(
    ("call", "sql"),
    [
        ("COUNT(DISTINCT shop) FILTER (WHERE items > 1)", "count(distinct shop) filter (where items > 1)"),
        ("SUM(items)", "cast(sum(items) as int)"),
        ("SUM(at_ms)", "sum(at_ms)"),
        ("SUM(items * 2)", "cast(sum(items * 2) as int)"),
        ("SUM(items / 2)", "cast(sum(cast(items div 2 as int)) as int)"),
        ("AVG(price)", "avg(price)"),
        (
            "AVG(amount)",
            "cast(cast(sum(amount) as decimal(38, 2)) / cast(count(amount) as decimal(20, 0)) as decimal(38, 6))",
        ),
        ("SUM(amount * 2)", "sum(cast(amount * cast(2 as decimal(10, 0)) as decimal(20, 2)))"),
        ("MAX(price) - MIN(price)", "max(price) - min(price)"),
        ("COUNT(*) / 2", "count(*) div 2"),
        ("CAST(COUNT(*) AS DOUBLE) / 2", "cast(count(*) as double) / 2"),
        ("SUM(CASE WHEN items IN (1, 2) THEN price END)", "sum(case when items in (1, 2) then price end)"),
        ("MAX(CONCAT(shop, '-', customer.country))", "max(concat(shop, '-', value.customer.country))"),
        ("MIN(COALESCE(price, 0))", "min(coalesce(price, 0))"),
    ],
)
def test_aggregates_have_the_values_and_types_of_flink(call: str, sql: str) -> None:
    content = of_query(f"SELECT {call} AS total FROM {WINDOW} GROUP BY window_start, window_end")
    assert content["aggregates"] == {"total": sql}


@pytest.mark.parametrize(
    ("table_function", "group", "window"),
    [
        (
            "HOP(TABLE orders, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '1' HOUR)",
            "",
            {"kind": "sliding", "slide": "5m", "size": "1h"},
        ),
        (
            (
                "HOP(DATA => TABLE orders, TIMECOL => DESCRIPTOR(at), SIZE => INTERVAL '1' HOUR,"
                " SLIDE => INTERVAL '0.5' SECOND)"
            ),
            "",
            {"kind": "sliding", "slide": "500ms", "size": "1h"},
        ),
        (
            "CUMULATE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR, INTERVAL '1' DAY, INTERVAL '30' MINUTE)",
            "",
            {"kind": "cumulate", "step": "1h", "size": "1d", "offset": "30m"},
        ),
        (
            "SESSION(TABLE orders PARTITION BY shop, items, DESCRIPTOR(at), INTERVAL '90' SECOND)",
            "items, shop, ",
            {"kind": "session", "gap": "1m30s"},
        ),
    ],
)
def test_windows_of_table_functions(table_function: str, group: str, window: dict[str, str]) -> None:
    content = of_query(
        f"SELECT COUNT(*) AS n FROM TABLE({table_function}) GROUP BY {group}window_start, window_end"
    )
    assert content["window"] == window


def test_older_group_windows_and_their_functions() -> None:
    content = of_query(
        "SELECT HOP_START(at, INTERVAL '5' MINUTE, INTERVAL '7' MINUTE), COUNT(*) AS n,"
        " HOP_ROWTIME(at, INTERVAL '5' MINUTE, INTERVAL '7' MINUTE) AS last_time"
        " FROM orders GROUP BY HOP(at, INTERVAL '5' MINUTE, INTERVAL '7' MINUTE)"
    )
    assert content["window"] == {"kind": "sliding", "slide": "5m", "size": "7m"}
    assert content["derive_after"] == {"last_time": "cast(window_end - interval 1 milliseconds as timestamp)"}


def test_views_subqueries_and_with_are_put_in_their_places() -> None:
    views = (
        f"{ORDERS}CREATE TEMPORARY VIEW big AS"
        " SELECT UPPER(shop) AS name, o.items, at FROM orders o WHERE items > 5;"
        "CREATE VIEW hours AS SELECT name, COUNT(*) AS n, window_start, window_end FROM TABLE("
        "TUMBLE(TABLE big, DESCRIPTOR(at), INTERVAL '1' HOUR)) GROUP BY name, window_start, window_end;"
    )
    content = expand(
        f"{views}INSERT INTO sink WITH h AS (SELECT * FROM hours) SELECT h.name AS shop_name, n * 10 AS tens"
        " FROM h WHERE n >= 3 OR name IS NULL;"
    )
    assert content["filter"] == {"where": "items > 5"}
    assert content["source"]["key"] == ["shop_name"]
    assert content["source"]["derive"]["shop_name"] == "upper(shop)"
    assert content["aggregates"] == {"tens": "count(*) * 10", "count_of_having": "count(*)"}
    assert content["having"] == {"condition": "count_of_having >= 3 or shop_name is null"}


def test_options_and_settings_decide_about_watermarks() -> None:
    sets = "SET 'table.exec.source.idle-timeout' = '90 s';\nSET 'pipeline.auto-watermark-interval' = '1 s';\n"
    query = f"SELECT COUNT(*) AS n FROM {WINDOW} GROUP BY window_start, window_end"
    assert of_query(query, sets)["watermark"] == {
        "strategy": "flink_sql",
        "delay": "5s",
        "idle_timeout": "1m30s",
        "emit_interval": "1s",
    }
    options = "'scan.watermark.idle-timeout' = '2 min', 'scan.watermark.emit.strategy' = 'on-event', 'connector'"
    orders = ORDERS.replace("'connector'", options)
    assert expand(f"{sets}{orders}INSERT INTO sink {query};")["watermark"] == {
        "strategy": "flink_sql",
        "delay": "5s",
        "idle_timeout": "2m",
        "emit": "on_event",
        "emit_interval": "1s",
    }


def test_an_operator_of_the_plan_makes_the_watermarks_of_files() -> None:
    query = f"SELECT COUNT(*) AS n FROM {WINDOW} GROUP BY window_start, window_end"
    orders = ORDERS.replace("'kafka'", "'filesystem'")
    content = expand(f"SET 'table.exec.source.idle-timeout' = '90 s';\n{orders}INSERT INTO sink {query};")
    assert content["watermark"] == {
        "strategy": "flink_sql",
        "delay": "5s",
        "topology": "operator",
        "idle_timeout": "1m30s",
    }


BERLIN = "SET 'table.local-time-zone' = 'Europe/Berlin';\n"


def test_windows_of_instants_are_in_the_local_time_of_the_job() -> None:
    query = f"SELECT window_start, MAX(at) AS last_at FROM {WINDOW} GROUP BY window_start, window_end"
    local = {"kind": "tumbling", "size": "1h", "time_zone": "Europe/Berlin"}
    assert of_query(query, BERLIN)["window"] == local
    stored = ORDERS.replace("at AS TO_TIMESTAMP_LTZ(at_ms, 3)", "at {}(3)")
    for kind, window in (("TIMESTAMP_LTZ", local), ("TIMESTAMP", {"kind": "tumbling", "size": "1h"})):
        content = expand(f"{BERLIN}{stored.format(kind)}INSERT INTO sink {query};")
        assert content["window"] == window
        assert content["source"]["time_zone"] == "UTC"


@pytest.mark.parametrize(
    ("call", "expression"),
    [
        ("MAX(DATE_FORMAT(at, 'HH'))", "DATE_FORMAT(at, 'HH')"),
        ("MAX(HOUR(at))", "HOUR(at)"),
        ("MAX(EXTRACT(DAY FROM at))", "EXTRACT(DAY FROM at)"),
        ("MAX(CAST(at AS TIMESTAMP(3)))", "CAST(at AS TIMESTAMP(3))"),
        (
            "COUNT(*) FILTER (WHERE at > TO_TIMESTAMP('2026-01-01 00:00:00'))",
            "at > TO_TIMESTAMP('2026-01-01 00:00:00')",
        ),
    ],
)
def test_functions_that_read_an_instant_in_local_time_are_refused(call: str, expression: str) -> None:
    query = f"SELECT {call} AS n FROM {WINDOW} GROUP BY window_start, window_end"
    assert of_query(query)["aggregates"]
    with pytest.raises(SpecError) as caught:
        of_query(query, BERLIN)
    assert (
        str(caught.value)
        .replace('"', "")
        .startswith(
            "a TIMESTAMP_LTZ as a time of table.local-time-zone = 'Europe/Berlin' is not possible in"
            f" {expression}: only windows are in local time (job.sql, line 14, column "
        )
    )


def test_a_window_time_in_local_time_is_refused() -> None:
    query = f"SELECT window_time, COUNT(*) AS n FROM {WINDOW} GROUP BY window_start, window_end, window_time"
    with pytest.raises(
        SpecError, match="window_time is not possible with windows in local time: it is an instant"
    ):
        of_query(query, BERLIN)
    sink = "CREATE TABLE sink (last_at TIMESTAMP(3)) WITH ('connector' = 'x');"
    query = f"SELECT MAX(at) FROM {WINDOW} GROUP BY window_start, window_end"
    assert expand(f"{ORDERS}{sink}INSERT INTO sink {query};")["aggregates"] == {"last_at": "max(at)"}
    with pytest.raises(SpecError, match=r"is not possible in MAX\(.*\): only windows are in local time"):
        expand(f"{BERLIN}{ORDERS}{sink}INSERT INTO sink {query};")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("t TIMESTAMP(3), WATERMARK FOR t AS t", {"event_time": "value.t", "time_zone": "UTC"}),
        (
            "s STRING, t AS TO_TIMESTAMP(s, 'dd/MM/yyyy HH:mm:ss'), WATERMARK FOR t AS t",
            {"event_time": "value.s", "event_time_pattern": "dd/MM/yyyy HH:mm:ss", "time_zone": "UTC"},
        ),
        (
            "s TIMESTAMP(6), t AS CAST(s AS TIMESTAMP(3)), WATERMARK FOR t AS t",
            {"event_time": "value.s", "time_zone": "UTC"},
        ),
        (
            "n BIGINT, t AS TO_TIMESTAMP_LTZ(n, 0), WATERMARK FOR t AS (t)",
            {"event_time": "value.n", "event_time_unit": "s"},
        ),
        (
            "n BIGINT, t AS TO_TIMESTAMP_LTZ(n / 1000, 3), WATERMARK FOR t AS t",
            {"event_time": "timestamp_millis(n div 1000)"},
        ),
        (
            "t TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, WATERMARK FOR t AS t",
            {"event_time": "arrival_ms", "event_time_unit": "ms"},
        ),
    ],
)
def test_the_time_of_the_watermark_is_read_as_flink_reads_it(columns: str, expected: dict[str, str]) -> None:
    content = expand(
        f"CREATE TABLE e ({columns}) WITH ('connector' = 'kafka', 'format' = 'json');"
        " INSERT INTO s SELECT COUNT(*) AS n FROM e GROUP BY TUMBLE(t, INTERVAL '1' DAY);"
    )
    found = {key: value for key, value in content["source"].items() if "event_time" in key or key == "time_zone"}
    assert found == expected


SUMS = (
    f"SELECT shop, items, SUM(amount) AS revenue, window_start, window_end FROM {WINDOW}"
    " GROUP BY shop, items, window_start, window_end HAVING COUNT(*) > 1"
)
RANKED = "SELECT shop, items, place FROM (SELECT *, {} AS place FROM ({})) WHERE {}"
NUMBER = "ROW_NUMBER() OVER (PARTITION BY window_start, {}window_end ORDER BY {})"


@pytest.mark.parametrize(
    ("number", "condition", "top"),
    [
        (
            NUMBER.format("", "revenue DESC, shop, items DESC"),
            "place <= 2",
            {"n": 2, "by": "sum_of_order desc, shop, items desc", "rank": "place"},
        ),
        (
            NUMBER.format("items, ", "items * 2, shop"),
            "3 > place",
            {"n": 2, "by": "items * 2, shop", "partition_by": ["items"], "rank": "place"},
        ),
        (
            NUMBER.format("shop, ", "items"),
            "place = 1",
            {"n": 1, "by": "items", "partition_by": ["shop"], "rank": "place"},
        ),
    ],
)
def test_a_row_number_with_a_greatest_number_is_a_top_n(number: str, condition: str, top: dict[str, Any]) -> None:
    content = of_query(RANKED.format(number, SUMS, condition))
    assert content["top"] == top
    assert content["source"]["key"] == ["shop", "items"]
    assert content["having"] == {"condition": "count_of_having > 1"}


@pytest.mark.parametrize(
    ("number", "by"),
    [
        (NUMBER.format("shop, ", "at"), "min_of_order, arrival, `partition`, `offset`"),
        (NUMBER.format("shop, ", "at DESC"), "min_of_order desc, arrival desc, `partition` desc, `offset` desc"),
        (
            NUMBER.format("shop, ", "at DESC, price"),
            "min_of_order desc, min_of_order_2, arrival, `partition`, `offset`",
        ),
    ],
)
def test_a_row_number_of_records_keeps_the_first_ones_in_the_order_of_arrival(number: str, by: str) -> None:
    content = of_query(
        f"SELECT shop, UPPER(customer.country) AS country, items * 2 AS twice FROM (SELECT *, {number} AS n"
        f" FROM {WINDOW} WHERE items > 0) WHERE n < 2"
    )
    assert content["top"] == {"n": 1, "by": by, "partition_by": ["shop"]}
    assert content["source"]["key"] == ["shop", "partition", "offset"]
    assert content["aggregates"]["country"] == "upper(min(value.customer.country))"
    assert content["aggregates"]["twice"] == "min(items) * 2"
    assert content["aggregates"]["arrival"] == "min(arrival_ms)"
    assert content["filter"] == {"where": "items > 0"}


TO_SINK = "SELECT window_start, {} FROM " + WINDOW + " GROUP BY shop, window_start, window_end"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (TO_SINK.format("SOUNDEX(shop)"), "the function SOUNDEX is not one of the tested functions"),
        (TO_SINK.format("FIRST_VALUE(items)"), "the function FIRST_VALUE is not one of the tested functions"),
        (TO_SINK.format("SUM(CAST(price AS FLOAT))"), "SUM of a FLOAT is not possible"),
        (TO_SINK.format("SUM(shop)"), "SUM needs a number, got STRING"),
        (
            TO_SINK.format("COUNT(DISTINCT shop, items)"),
            "DISTINCT is only possible in COUNT of one expression, got COUNT",
        ),
        (TO_SINK.format("MAX(shop = items)"), "a comparison of STRING with INT is not possible"),
        (
            TO_SINK.format("MAX(CAST(price AS STRING))"),
            "CAST of DOUBLE to STRING is not possible: its values differ in Spark",
        ),
        (
            TO_SINK.format("SUM(amount * amount * amount * amount)"),
            "DECIMAL(30, 6) * DECIMAL(10, 2) has too many digits",
        ),
        (TO_SINK.format("MAX(nothing)"), "there is no column 'nothing' here"),
        (TO_SINK.format("items"), "items is neither a key nor in an aggregate"),
        (
            TO_SINK.format("MAX(CURRENT_TIMESTAMP)"),
            "CURRENT_TIMESTAMP is not possible: a replay has no clock of the wall",
        ),
        (TO_SINK.format("MAX(NOW())"), "NOW is not possible: a replay has no clock of the wall"),
        (
            "SELECT shop, COUNT(*) FROM orders GROUP BY shop",
            "GROUP BY without a window is not possible: its rows change with each record",
        ),
        ("SELECT shop FROM orders", "an INSERT without a window is not possible: it has no aggregation"),
        (
            f"SELECT COUNT(*) FROM {WINDOW} GROUP BY window_start",
            "GROUP BY needs window_start and window_end: else its rows change with each record",
        ),
        (
            f"SELECT COUNT(*) FROM {WINDOW} GROUP BY GROUPING SETS ((window_start, window_end))",
            "GROUPING SETS, CUBE, and ROLLUP are not possible",
        ),
        (
            "SELECT a.shop FROM orders a JOIN orders b ON a.shop = b.shop",
            "a join of a table with itself is not possible",
        ),
        (
            "SELECT COUNT(*) FROM (SELECT * FROM orders a JOIN orders b ON a.shop = b.shop) GROUP BY shop",
            "a join is not possible",
        ),
        ("SELECT shop, SUM(items) OVER (ORDER BY at) FROM orders", "OVER is not possible"),
        (
            RANKED.format(NUMBER.format("", "revenue DESC"), SUMS, "place <= 2").replace("ROW_NUMBER", "RANK"),
            "OVER is not possible",
        ),
        (
            RANKED.format(NUMBER.format("", "revenue DESC, shop"), SUMS, "place <= 2"),
            "ORDER BY of ROW_NUMBER leaves equal rows in an order that is by chance in Flink",
        ),
        (
            RANKED.format(NUMBER.format("revenue, ", "shop, items"), SUMS, "place <= 2"),
            'PARTITION BY of ROW_NUMBER needs keys of GROUP BY, got SUM("amount")',
        ),
        (
            RANKED.format(NUMBER.format("", "shop, items NULLS LAST"), SUMS, "place <= 2"),
            "NULLS FIRST and NULLS LAST are not possible: nulls are the least values",
        ),
        *(
            (
                RANKED.format(NUMBER.format("", "shop, items"), SUMS, condition),
                "the only condition on ranked rows must be a greatest number, e.g., rownum <= 3",
            )
            for condition in ("place = 2", "place <= 2 AND items > 1", "place < 1", "place > 2", "items > 1")
        ),
        (
            RANKED.format(NUMBER.format("", "shop, items"), SUMS, "place <= 2").replace("WHERE place <= 2", ""),
            "ROW_NUMBER needs a condition on it in the query around, e.g., WHERE rownum <= 3",
        ),
        (
            RANKED.format(NUMBER.format("", "shop"), "SELECT * FROM orders", "place <= 2").replace(
                "window_start, window_end", "shop"
            ),
            "ROW_NUMBER needs PARTITION BY window_start, window_end: else its rows change with each record",
        ),
        (
            RANKED.format(
                NUMBER.format("shop, ", "at"),
                "SELECT * FROM TABLE(SESSION(TABLE orders PARTITION BY shop, DESCRIPTOR(at), INTERVAL '1' HOUR))",
                "place = 1",
            ),
            "ROW_NUMBER of records in sessions is not possible",
        ),
        ("SELECT shop FROM orders UNION ALL SELECT shop FROM orders", "UNION is not possible"),
        ("SELECT DISTINCT shop FROM orders", "DISTINCT is not possible"),
        ("SELECT shop FROM nowhere", "the script has no table 'nowhere'"),
        (
            "SELECT COUNT(*) FROM orders GROUP BY TUMBLE(kafka_time, INTERVAL '1' HOUR)",
            "the time of the window must be the column of WATERMARK FOR in orders",
        ),
        (
            "SELECT COUNT(*) FROM orders GROUP BY TUMBLE(at, INTERVAL '1' MONTH)",
            "TUMBLE needs SIZE, OFFSET as INTERVAL of days, hours, minutes, or seconds",
        ),
        (
            (
                "SELECT COUNT(*) FROM TABLE("
                "HOP(TABLE orders, DESCRIPTOR(at), INTERVAL '7' MINUTE, INTERVAL '1' HOUR))"
                " GROUP BY window_start, window_end"
            ),
            "the size of HOP must be a multiple of its slide",
        ),
        (
            (
                "SELECT COUNT(*) FROM TABLE(SESSION(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR))"
                " GROUP BY shop, window_start, window_end"
            ),
            "GROUP BY and PARTITION BY of SESSION must have the same keys",
        ),
        (
            f"SELECT COUNT(*) FROM {WINDOW} WHERE window_start > at GROUP BY window_start, window_end",
            "a condition on a window before its aggregation is not possible",
        ),
    ],
)
def test_what_a_definition_cannot_express_is_refused(query: str, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        of_query(query)
    assert str(caught.value).startswith(f"{problem} (job.sql, line 13, column ")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("'kafka'", "'kinesis'", f"a source of kinesis {OTHER_SOURCE} (job.sql, line 12, column 9)"),
        (
            "'kafka'",
            "'filesystem', 'scan.watermark.emit.strategy' = 'on-event'",
            (
                "scan.watermark.emit.strategy has no meaning for filesystem, which does not make watermarks itself"
                " (job.sql, line 12, column 37)"
            ),
        ),
        ("'json'", "'debezium-json'", f"a source of debezium-json {OTHER_SOURCE} (job.sql, line 12, column 9)"),
        (
            "'orders',",
            "'a;b',",
            "several topics are not possible in one table: write each as [[source]] (job.sql, line 12, column 32)",
        ),
        (
            "at - INTERVAL '5' SECOND",
            "at - INTERVAL '5' MONTH",
            (
                "a watermark must be at, or at less an INTERVAL of days, hours, minutes, or seconds"
                " (job.sql, line 11, column 23)"
            ),
        ),
        (
            "CREATE",
            "SET 'table.local-time-zone' = 'GMT+01:00'; CREATE",
            "the time zone must have a name such as Europe/Berlin, got 'GMT+01:00' (job.sql, line 1, column 1)",
        ),
        (
            "CREATE",
            "SET 'execution.runtime-mode' = 'batch'; CREATE",
            (
                "the setting execution.runtime-mode = 'batch' is not possible: it may change rows"
                " (job.sql, line 1, column 1)"
            ),
        ),
        ("items INT", "items BYTES", "the type BYTES of items is not possible (job.sql, line 4, column 3)"),
        (
            "shop STRING",
            "Shop STRING,\n  shop STRING",
            "the names Shop and shop differ only in case (job.sql, line 3, column 3)",
        ),
        ("DECIMAL(10, 2)", "DECIMAL(x)", "the numbers of a type are expected here (job.sql, line 3, column 17)"),
        ("DECIMAL(10, 2)", "GEOMETRY", "the type GEOMETRY is not known (job.sql, line 3, column 10)"),
        ("CREATE", "MERGE INTO a; CREATE", "the statement MERGE is not possible (job.sql, line 1, column 1)"),
    ],
)
def test_other_sources_and_settings_are_refused_at_their_place(old: str, new: str, problem: str) -> None:
    script = ORDERS.replace(old, new, 1)
    query = f"SELECT shop, COUNT(items) AS n FROM {WINDOW} GROUP BY shop, window_start, window_end"
    with pytest.raises(SpecError) as caught:
        expand(f"{script}INSERT INTO sink {query};")
    assert str(caught.value).partition("\n")[0] == problem


def test_types_of_the_sink_decide_about_casts() -> None:
    sink = "CREATE TABLE sink (shopName STRING, meanItems DOUBLE, total DECIMAL(38, 2)) WITH ('connector' = 'x');"
    query = f"SELECT shop, AVG(items), SUM(amount) FROM {WINDOW} GROUP BY shop, window_start, window_end"
    content = expand(f"{ORDERS}{sink}INSERT INTO sink {query};")
    assert content["source"]["key"] == ["shop_name"]
    assert content["aggregates"] == {
        "mean_items": "cast(sum(items) div count(items) as int)",
        "total": "sum(amount)",
    }
    with pytest.raises(SpecError, match=r"^STRING is no DOUBLE, the type of the sink's column \(job.sql, line 13"):
        expand(f"{ORDERS}{sink}INSERT INTO sink {query.replace('AVG(items)', 'MAX(shop)')};")


def test_a_definition_takes_its_script_beside_it(tmp_path: Path) -> None:
    query = f"SELECT shop, COUNT(*) AS n FROM {WINDOW} GROUP BY shop, window_start, window_end"
    (tmp_path / "job.sql").write_text(f"{ORDERS}INSERT INTO a {query}; INSERT INTO b {query} HAVING COUNT(*) > 1;")
    text = """
name = "orders"
[flink_sql]
script = "job.sql"
{}
[source]
path = "archive/*.json"
format = "json"
arrival_time = "seen"
columns = {{ seen = "timestamp" }}
"""
    path = tmp_path / "orders.toml"
    path.write_text(text.format('insert = "b"'))
    definition = load_definition(path)
    assert definition.having is not None
    assert definition.source.columns["at_ms"] == "bigint"
    content = definition.model_dump(mode="json", exclude_defaults=True)
    assert "flink_sql" not in content
    assert parse_definition(content, "same").definition_hash == definition.definition_hash
    for lines, problem in {
        "": f"flink_sql.insert is missing: the script inserts into a, b ({path})",
        'insert = "c"': f"flink_sql.insert must be one of a, b, each with one INSERT, got 'c' ({path})",
        'insert = "a"\n[window]\nkind = "session"': (
            f"window has no meaning with [flink_sql], because the script gives it ({path})"
        ),
    }.items():
        path.write_text(text.format(lines))
        with pytest.raises(SpecError) as caught:
            load_definition(path)
        assert str(caught.value) == problem
    (tmp_path / "job.sql").unlink()
    with pytest.raises(SpecError) as caught:
        load_definition(path)
    assert (
        str(caught.value) == f"cannot read the Flink SQL script at {tmp_path}/job.sql: No such file or directory"
    )


def test_fields_of_parquet_files_are_columns_with_their_own_types() -> None:
    query = (
        f"SELECT shop, MAX(amount) AS top FROM {WINDOW} WHERE price > 0 GROUP BY shop, window_start, window_end"
    )
    content = {"name": "orders", "flink_sql": {"script": "job.sql"}, "source": {"path": "archive"}}
    script = ScriptText(f"{ORDERS}INSERT INTO sink {query};", "job.sql")
    source = expand_script(content, script, "orders.toml").content["source"]
    assert "columns" not in source
    assert source["event_time"] == "at_ms"
    assert source["derive"] == {
        "shop": "cast(shop as string)",
        "price": "cast(price as double)",
        "amount": "cast(amount as decimal(10, 2))",
    }


PAYMENTS = """CREATE TABLE payments (
  orderShop STRING, paid DECIMAL(10, 2), items BIGINT, paid_ms BIGINT, at AS TO_TIMESTAMP_LTZ(paid_ms, 3),
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'payments', 'format' = 'json');
"""
PAIRS = "SELECT o.shop, o.items, p.paid, p.at AS paid_at FROM orders o {}JOIN payments p ON {}"
INTERVAL = "o.shop = p.orderShop AND p.at BETWEEN o.at - INTERVAL '1' HOUR AND o.at + INTERVAL '1' DAY"
SAME_WINDOW = "o.window_start = p.window_start AND o.window_end = p.window_end"


def of_join(query: str, orders: str = ORDERS, payments: str = PAYMENTS) -> dict[str, Any]:
    sources = [{**ARCHIVE, "name": name, "path": f"{name}/*.json"} for name in ("payments", "orders")]
    content = {"name": "pairs", "flink_sql": {"script": "job.sql", "value": "value"}, "source": sources}
    script = ScriptText(f"{orders}{payments}INSERT INTO sink {query};", "job.sql")
    found = dict(expand_script(content, script, "pairs.toml").content)
    parse_definition(found, "pairs.toml")
    return found


def windowed(query: str, call: str = "TUMBLE", lengths: str = "INTERVAL '1' HOUR") -> str:
    for table in ("orders", "payments"):
        query = query.replace(
            f"{table} ", f"(SELECT * FROM TABLE({call}(TABLE {table}, DESCRIPTOR(at), {lengths}))) "
        )
    return query


def test_an_interval_join_has_a_source_for_each_table() -> None:
    content = of_join(PAIRS.format("LEFT ", f"{INTERVAL} AND p.items >= o.items AND p.paid > 0"))
    assert content["join"] == {
        "kind": "interval",
        "type": "left",
        "semantics": "flink_sql",
        "left": {"items_2": "int", "left_1": "bigint"},
        "right": {"paid": "decimal(10, 2)", "paid_at": "timestamp", "right_1": "bigint"},
        "where": "left_1 <= right_1",
        "lower": "-1h",
        "upper": "1d",
    }
    assert [(each["name"], each["path"], each["key"]) for each in content["source"]] == [
        ("orders", "orders/*.json", ["shop"]),
        ("payments", "payments/*.json", ["shop"]),
    ]
    assert content["source"][1]["derive"] == {
        "order_shop": "value.orderShop",
        "paid": "cast(value.paid as decimal(10, 2))",
        "paid_ms": "value.paid_ms",
        "at": "timestamp_millis(paid_ms)",
        "items": "value.items",
        "shop": "order_shop",
        "paid_at": "at",
        "right_1": "cast(items as bigint)",
        "is_kept": "coalesce((paid > 0), false)",
    }
    assert content["source"][0]["derive"]["is_kept"] == "true"
    assert content["filter"] == {"where": "is_kept"}
    assert content["watermark"] == {"strategy": "flink_sql", "delay": "5s"}
    assert content["backfill"] == {"mode": "replay"}


@pytest.mark.parametrize(
    ("times", "bounds"),
    [
        (
            "p.at > o.at AND o.at >= p.at - INTERVAL '5' MINUTE",
            {"lower": "0s", "lower_exclusive": True, "upper": "5m"},
        ),
        (
            "(o.at - INTERVAL '3' SECOND < p.at + INTERVAL '2' SECOND AND p.at < o.at)",
            {"lower": "-5s", "lower_exclusive": True, "upper": "0s", "upper_exclusive": True},
        ),
        ("o.at BETWEEN p.at - INTERVAL '1' HOUR AND p.at", {"lower": "0s", "upper": "1h"}),
    ],
)
def test_bounds_of_an_interval_join_are_those_of_the_right_time_less_the_left_one(
    times: str, bounds: dict[str, Any]
) -> None:
    query = PAIRS.format("", f"o.shop = p.orderShop AND {times}")
    others = {"kind", "type", "semantics", "left", "right"}
    for text in (query, query.replace("JOIN payments p ON", ", payments p WHERE")):
        section = of_join(text)["join"]
        assert {key: value for key, value in section.items() if key not in others} == bounds


def test_a_join_of_windows_has_the_watermark_of_each_table() -> None:
    select = PAIRS.format("FULL ", f"o.shop = p.orderShop AND {SAME_WINDOW}").replace(
        "p.paid,", "p.orderShop, p.paid,"
    )
    content = of_join(windowed(select), payments=PAYMENTS.replace("'5' SECOND", "'9' SECOND"))
    assert content["join"]["left"] == {"shop_2": "string", "items": "int"}
    assert content["join"]["right"] == {"order_shop": "string", "paid": "decimal(10, 2)", "paid_at": "timestamp"}
    assert (content["join"]["kind"], content["join"]["type"]) == ("window", "full")
    assert content["window"] == {"kind": "tumbling", "size": "1h"}
    assert content["watermark"] == {}
    assert [each["watermark"]["delay"] for each in content["source"]] == ["5s", "9s"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (
            PAIRS.format("", "o.shop = p.orderShop"),
            "a join needs a lower and an upper bound of the times, or windows",
        ),
        (PAIRS.format("", INTERVAL.replace("o.shop", "'x'")), "a join needs an equality of columns of both sides"),
        (PAIRS.format("", f"{INTERVAL} AND o.at = p.at"), "an interval join needs one lower and one upper bound"),
        (PAIRS.format("", f"{INTERVAL} AND o.at > p.at"), "an interval join needs one lower and one upper bound"),
        (PAIRS.format("LEFT ", f"{INTERVAL} AND o.items > 1"), "a condition on a side all of whose rows are kept"),
        (PAIRS.format("LEFT ", f"{INTERVAL} WHERE p.items > 1"), "WHERE after a LEFT JOIN is not possible"),
        (PAIRS.format("", f"{INTERVAL} AND (o.items = 1 OR p.items = 1)"), "a condition of a join must compare"),
        (PAIRS.format("", f"{INTERVAL} AND o.amount < p.items"), "a comparison of DECIMAL(10, 2) with BIGINT"),
        (
            PAIRS.format("", INTERVAL).replace("o.items", "o.items + p.items"),
            "a column of a join must be an expression",
        ),
        (PAIRS.format("", INTERVAL).replace("o.items", "o.*"), "a star or OVER is not possible in a join"),
        (PAIRS.format("", INTERVAL).replace("o.items", "items"), "the column items is in both sides of the join"),
        (
            PAIRS.format("", f"{INTERVAL} JOIN payments q ON TRUE"),
            "a join of more than two tables is not possible",
        ),
        (PAIRS.format("CROSS ", "TRUE"), "only an INNER, LEFT, RIGHT, or FULL JOIN with ON is possible"),
        (
            windowed(PAIRS.format("", "o.shop = p.orderShop")),
            "a join of windows needs equal window_start and window_end",
        ),
        (
            windowed(
                PAIRS.format("", f"o.shop = p.orderShop AND {SAME_WINDOW}"),
                "HOP",
                "INTERVAL '5' MINUTE, INTERVAL '1' HOUR",
            ),
            "a join of HOP windows is not possible: a row has one tumbling window",
        ),
        (
            windowed(
                PAIRS.format("LEFT ", f"o.shop = p.orderShop AND {SAME_WINDOW}").replace("p.at", "p.window_end")
            ),
            "only window_start and window_end are possible here, and of a side that is never null",
        ),
        (
            PAIRS.format("", INTERVAL).replace("orders o", f"({SUMS}) o"),
            "a join of aggregates is not possible: rows of [join] are pairs of records",
        ),
        (f"{PAIRS.format('', INTERVAL)} GROUP BY o.shop", "an aggregation of a join is not possible"),
    ],
)
def test_joins_that_a_definition_cannot_express_are_refused(query: str, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        of_join(query)
    assert str(caught.value).startswith(problem)
    assert " (job.sql, line 17, column " in str(caught.value)


def test_a_join_needs_two_sources_with_the_names_of_its_tables() -> None:
    with pytest.raises(SpecError) as caught:
        expand(f"{ORDERS}{PAYMENTS}INSERT INTO sink {PAIRS.format('', INTERVAL)};")
    assert str(caught.value) == (
        "a join needs two [[source]] with the names of its tables, orders and payments (orders.toml)"
    )


COUNTS = (
    "SELECT shop, COUNT(*) AS n, window_start, window_end FROM {} {}GROUP BY shop, window_start, window_end"
).format(WINDOW, "{}")
MOST = "SELECT MAX(c.n) AS most, c.window_start, c.window_end FROM ({}) c GROUP BY c.window_start, c.window_end"
HOT = (
    "SELECT a.shop, a.n FROM ({}) a JOIN ({}) m"
    " ON a.window_start = m.window_start AND a.window_end = m.window_end AND {}"
)


@pytest.mark.parametrize("condition", ["a.n >= m.most", "m.most = a.n", "m.most <= a.n"])
def test_counts_joined_with_their_maximum_are_a_top_n_with_ties(condition: str) -> None:
    counts = COUNTS.format("WHERE items > 0 ")
    content = of_query(HOT.format(counts, MOST.format(counts), condition))
    assert content["top"] == {"n": 1, "by": "n desc", "ties": "keep"}
    assert content["source"]["key"] == ["shop"]
    assert content["filter"] == {"where": "items > 0"}


@pytest.mark.parametrize(
    ("one", "other", "condition"),
    [
        ("", "", "a.n <= m.most"),
        ("", "", "a.n > m.most"),
        ("", "", "a.n >= m.most AND a.n > 1"),
        ("WHERE items > 0 ", "", "a.n >= m.most"),
    ],
)
def test_other_joins_of_aggregates_are_refused(one: str, other: str, condition: str) -> None:
    query = HOT.format(COUNTS.format(one), MOST.format(COUNTS.format(other)), condition)
    with pytest.raises(SpecError, match="a join of aggregates is not possible: rows of"):
        of_query(query)
    for of_windows in (MOST.format(COUNTS.format("")), MOST.format(COUNTS.format("")).replace("MAX", "SUM")):
        with pytest.raises(SpecError, match="a window of windows is not possible"):
            of_query(of_windows)
