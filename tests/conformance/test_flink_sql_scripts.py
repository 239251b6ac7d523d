"""Run scripts of Flink SQL as definitions, and compare the rows with those of Flink 2.3.0."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.conformance.pair_cover import Line
from tests.conformance.test_run_engines import run_engine

from backstream.conformance.cases import load_cases
from backstream.conformance.comparison import find_difference
from backstream.conformance.reference_engine import run_cases

SCRIPTS = Path(__file__).parent / "flink_sql" / "scripts"


def lines_of(*numbers: str) -> list[Line]:
    return [line for line in load_cases([SCRIPTS]) if line["case"]["name"].startswith(numbers)]


@pytest.mark.slow
def test_rows_of_scripts_agree_with_flink_on_spark(spark: SparkSession) -> None:
    tally = find_difference(lines_of("02", "05"), run_engine(spark, "spark"))

    assert (tally.differ, tally.agree) == ([], 2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "agree", "unsupported"),
    [
        ("spark", 10, []),
        (
            "native",
            6,
            [
                "[join] needs the records of a key one after the other",
                "aggregates.errors is count(*) filter (where status >= 500)",
                "aggregates.visitors is count(distinct visitor)",
            ],
        ),
    ],
)
def test_rows_of_all_scripts_agree_with_flink(
    spark: SparkSession, engine: str, agree: int, unsupported: list[str]
) -> None:
    tally = find_difference(
        lines_of("01", "02", "03", "04", "05", "06", "07", "08", "11", "13"), run_engine(spark, engine)
    )

    assert (tally.differ, tally.agree, sorted(tally.unsupported)) == ([], agree, unsupported)


def test_scripts_that_no_definition_expresses_are_counted_by_their_reason() -> None:
    tally = find_difference(lines_of("09", "10", "12"), run_cases)

    assert (tally.differ, tally.agree) == ([], 0)
    reasons = Counter(reason.partition(" (")[0] for reason in tally.unsupported.elements())
    assert reasons == {
        "a join of aggregates is not possible: rows of [join] are pairs of records": 2,
        "windows of processing time are not possible: a replay has no clock of the wall": 1,
    }


def test_a_row_that_flink_does_not_have_is_a_difference(spark: SparkSession) -> None:
    (line,) = lines_of("01")
    live = [*line["flink"]["live"][1:], {**line["flink"]["live"][0], "orders": 1}]

    tally = find_difference([{**line, "flink": {**line["flink"], "live": live}}], run_engine(spark, "native"))

    assert len(tally.differ) == 1
    assert tally.differ[0].startswith(
        "differs: 01_tumble_revenue: live rows: at shop = east, window_start = 17724384"
    )


TRAFFIC = """
CREATE TABLE requests (host STRING, status INT, size_bytes BIGINT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH ('connector' = 'kafka', 'topic' = 'requests', 'format' = 'json');
CREATE TABLE report (hostName STRING, `at` STRING, closes TIMESTAMP(3), lastTime TIMESTAMP(3), meanStatus INT,
  meanSize BIGINT, kinds BIGINT, lastTs TIMESTAMP(3), shout STRING, share DECIMAL(10, 4)
) WITH ('connector' = 'kafka');
CREATE VIEW found AS SELECT UPPER(host) AS name, r.* FROM requests r WHERE status <> 404;
INSERT INTO report
SELECT name, DATE_FORMAT(window_start, 'HH:mm'), window_end, window_time, AVG(status), SUM(size_bytes) / COUNT(*),
  COUNT(DISTINCT status), MAX(ts), CONCAT(name, '!'), AVG(CAST(status AS DECIMAL(6, 2)))
FROM TABLE(TUMBLE(TABLE found, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
GROUP BY name, window_start, window_end
HAVING MAX(size_bytes) > 8000 AND COUNT(*) > 1;
"""


def half_up(number: Decimal, unit: str) -> Decimal:
    return number.quantize(Decimal(unit), ROUND_HALF_UP)


def traffic_report() -> list[dict[str, object]]:
    """Return the rows of TRAFFIC, computed without backstream."""
    (line,) = lines_of("02")
    groups: dict[tuple[str, datetime], list[dict[str, Any]]] = {}
    for event in line["case"]["events"]:
        value = event["value"]
        at = datetime.fromisoformat(value["ts"])
        start = at.replace(minute=at.minute // 10 * 10, second=0, microsecond=0)
        if value["status"] != 404:
            groups.setdefault((value["host"].upper(), start), []).append(value)
    rows: list[dict[str, object]] = []
    for (host, start), values in groups.items():
        if max(value["size_bytes"] for value in values) <= 8000 or len(values) == 1:
            continue
        statuses = [value["status"] for value in values]
        closes, mean = start + timedelta(minutes=10), Decimal(sum(statuses)) / len(values)
        rows.append(
            {
                "hostName": host,
                "at": f"{start:%H:%M}",
                "closes": closes.isoformat(),
                "lastTime": (closes - timedelta(milliseconds=1)).isoformat(),
                "meanStatus": sum(statuses) // len(values),
                "meanSize": sum(value["size_bytes"] for value in values) // len(values),
                "kinds": len(set(statuses)),
                "lastTs": max(value["ts"] for value in values),
                "shout": f"{host}!",
                "share": str(half_up(half_up(mean, "0.000001"), "0.0001")),
            }
        )
    return rows


@pytest.mark.slow
def test_views_derived_columns_and_hidden_aggregates_have_their_values(spark: SparkSession) -> None:
    (line,) = lines_of("02")
    case = {**line["case"], "name": "traffic", "script": TRAFFIC}

    tally = find_difference([{"case": case, "flink": {"complete": traffic_report()}}], run_engine(spark, "spark"))

    assert (tally.differ, tally.unsupported, tally.agree) == ([], {}, 1)


LAST_REQUESTS = """
CREATE TABLE requests (host STRING, status INT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH ('connector' = 'kafka', 'topic' = 'requests', 'format' = 'json');
CREATE TABLE lastRequests (host STRING, place BIGINT, status INT, ts TIMESTAMP(3), window_end TIMESTAMP(3)
) WITH ('connector' = 'kafka');
INSERT INTO lastRequests
SELECT host, place, status, ts, window_end FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, host ORDER BY status, ts DESC) AS place
  FROM TABLE(TUMBLE(TABLE requests, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
) WHERE place < 3;
"""


def last_requests() -> list[dict[str, object]]:
    """Return the rows of LAST_REQUESTS, computed without backstream."""
    (line,) = lines_of("02")
    groups: dict[tuple[str, datetime], list[tuple[int, datetime]]] = {}
    for event in line["case"]["events"]:
        value = event["value"]
        at = datetime.fromisoformat(value["ts"])
        start = at.replace(minute=at.minute // 10 * 10, second=0, microsecond=0)
        groups.setdefault((value["host"], start), []).append((value["status"], at))
    return [
        {
            "host": host,
            "place": place,
            "status": status,
            "ts": at.isoformat(),
            "window_end": (start + timedelta(minutes=10)).isoformat(),
        }
        for (host, start), values in groups.items()
        for place, (status, at) in enumerate(
            sorted(values, key=lambda each: (each[0], -each[1].timestamp()))[:2], 1
        )
    ]


@pytest.mark.slow
def test_the_first_records_of_a_window_have_their_values(spark: SparkSession) -> None:
    (line,) = lines_of("02")
    case = {**line["case"], "name": "last_requests", "script": LAST_REQUESTS}

    tally = find_difference([{"case": case, "flink": {"complete": last_requests()}}], run_engine(spark, "native"))

    assert (tally.differ, tally.unsupported, tally.agree) == ([], {}, 1)


def shifted(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its window an hour later."""
    names = ("window_start", "window_end")
    return row | {name: (datetime.fromisoformat(row[name]) + timedelta(hours=1)).isoformat() for name in names}


@pytest.mark.slow
def test_windows_of_a_script_in_local_time_fire_at_the_same_instants(spark: SparkSession) -> None:
    (line,) = lines_of("01")
    script = f"SET 'table.local-time-zone' = 'Europe/Berlin';\n{line['case']['script']}"
    live = [shifted(row) for row in line["flink"]["live"]]

    tally = find_difference(
        [{"case": {**line["case"], "script": script}, "flink": {"live": live}}], run_engine(spark, "native")
    )

    assert (tally.differ, tally.unsupported, tally.agree) == ([], {}, 1)


@pytest.mark.parametrize(("zone", "is_possible"), [("Asia/Kolkata", False), ("Asia/Tokyo", True)])
def test_windows_whose_records_flink_can_lose_are_counted_by_their_reason(zone: str, *, is_possible: bool) -> None:
    (line,) = lines_of("01")
    script = line["case"]["script"].replace("'5' MINUTES", "'1' HOUR")
    case = {**line["case"], "script": f"SET 'table.local-time-zone' = '{zone}';\n{script}"}

    tally = find_difference([{**line, "case": case}], run_cases)

    reason = f"windows in {zone}, of which Flink can lose records in a buffer"
    assert (reason in tally.unsupported) is not is_possible


@pytest.mark.slow
def test_conditions_on_the_sides_of_a_join_leave_out_its_pairs(spark: SparkSession) -> None:
    (line,) = lines_of("07")
    script = line["case"]["script"].replace(
        "INTERVAL '10' MINUTES;", "INTERVAL '10' MINUTES WHERE o.shop <> 'south' AND 1010 < p.payment_id;"
    )
    live = [row for row in line["flink"]["live"] if row["shop"] != "south" and row["payment_id"] > 1010]
    assert 0 < len(live) < len(line["flink"]["live"])

    tally = find_difference(
        [{"case": {**line["case"], "script": script}, "flink": {"live": live}}], run_engine(spark, "spark")
    )

    assert (tally.differ, tally.unsupported, tally.agree) == ([], {}, 1)
