"""Definitions with a join: what they become, and what is rejected."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from backstream.definition.loader import load_definition, parse_definition
from backstream.errors import SpecError
from backstream.eventtime.emission import Inputs
from backstream.report.figures import aggregate_texts

PAGE = Path(__file__).parents[2] / "docs" / "joins.md"
WHERE = "join where must compare a left with a right column, e.g., `amount < credit`"
SOURCE = {"path": "/data", "event_time": "at", "arrival_time": "received", "key": ["id"]}
JOIN = {
    "kind": "interval",
    "semantics": "flink_datastream",
    "lower": "-10m",
    "upper": "4h",
    "left": {"amount": "bigint"},
    "right": {"credit": "bigint"},
}


def content(join: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Return a definition with a join; None leaves a key out."""
    section = {key: value for key, value in (JOIN | join).items() if value is not None}
    whole = {
        "name": "pairs",
        "source": [{**SOURCE, "name": "orders"}, {**SOURCE, "name": "payments"}],
        "window": {"kind": "tumbling", "size": "1h"},
        "join": section,
    }
    return {key: value for key, value in (whole | others).items() if value is not None}


def refusal(join: dict[str, Any], **others: Any) -> str:
    with pytest.raises(SpecError) as refused:
        parse_definition(content(join, **others), "pairs.toml")
    return str(refused.value)


def test_the_example_of_the_page_is_a_join_of_two_sources(tmp_path: Path) -> None:
    example, *_ = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "paid_orders.toml"
    path.write_text(example)

    definition = load_definition(path)

    assert definition.value_names == ("amount", "method", "paid")
    assert definition.emission.inputs is Inputs.OPERATOR
    assert [part.derive["join_side"] for part in definition.source.parts] == ["0", "1"]


def test_a_join_is_computed_by_a_process_function_that_a_plan_keeps() -> None:
    definition = parse_definition(content({"where": "credit >= amount", "upper_exclusive": True}), "pairs.toml")

    stored = parse_definition(json.loads(definition.model_dump_json()), "plan")

    assert stored == definition
    assert stored.definition_hash == definition.definition_hash
    assert definition.process is not None
    assert definition.process.kwargs["conditions"] == [["amount", "<=", "credit"]]
    assert definition.process.kwargs["bounds_ms"] == [-600_000, 4 * 3_600_000 - 1]
    assert definition.process.state_reach == 4 * 3_600_000 - 1
    assert definition.source.parts[0].derive == {"credit": "cast(null as bigint)", "join_side": "0"}


def test_a_report_names_the_join_of_each_column() -> None:
    definition = parse_definition(content({}), "pairs.toml")

    assert aggregate_texts(definition) == (
        "amount = bigint of inner interval join (flink_datastream)",
        "credit = bigint of inner interval join (flink_datastream)",
    )


@pytest.mark.parametrize(
    ("join", "reach_ms"),
    [
        ({"kind": "window", "lower": None, "upper": None}, 3_600_000),
        ({"kind": "window", "lower": None, "upper": None, "window": {"kind": "session", "gap": "1h"}}, None),
        ({"semantics": "flink_sql"}, None),
        ({"semantics": "flink_sql", "state_reach": "2d"}, 2 * 86_400_000),
    ],
)
def test_the_reach_of_a_row_follows_from_the_times_of_partners(join: dict[str, Any], reach_ms: int | None) -> None:
    definition = parse_definition(content(join), "pairs.toml")

    assert definition.process is not None
    assert definition.process.state_reach == reach_ms


@pytest.mark.parametrize(
    ("join", "others", "problem"),
    [
        (
            {"lower": None},
            {},
            "join lower is missing with kind = 'interval': without a bound, a record would wait for ever",
        ),
        (
            {"lower": "5h"},
            {},
            "join lower must not be greater than upper, got 18000000 ms and 14400000 ms (inclusive)",
        ),
        ({"kind": "window"}, {}, "join lower is for kind = 'interval', got 'window'"),
        (
            {"kind": "temporal", "lower": None, "upper": None},
            {},
            "join semantics must be 'flink_sql' with kind = 'temporal', got 'flink_datastream'",
        ),
        (
            {"type": "left"},
            {},
            (
                "join type must be one of 'inner' with kind = 'interval' and semantics = 'flink_datastream',"
                " got 'left'"
            ),
        ),
        (
            {"semantics": "structured_streaming"},
            {},
            "join.semantics must be 'flink_datastream' or 'flink_sql', got 'structured_streaming'",
        ),
        (
            {"right": {"amount": "int"}},
            {},
            "join right.amount has the name of a left column: derive another name in its source",
        ),
        (
            {"where": "amount + 1 < credit"},
            {},
            f"{WHERE}, got 'amount + 1 < credit'",
        ),
        (
            {"where": "amount < credit OR credit = amount"},
            {},
            f"{WHERE}, got 'amount < credit OR credit = amount'",
        ),
        (
            {"where": "amount = credit", "right": {"credit": "string"}},
            {},
            "join where compares amount of type bigint with credit of type string: cast one in its source",
        ),
        (
            {"right": {"credit": "bigit"}},
            {},
            "join right.credit must be a type of Spark SQL such as bigint or string, got 'bigit'",
        ),
        ({"where": "amount <"}, {}, "join where is not SQL, got 'amount <'"),
        (
            {"state_reach": "1d"},
            {},
            "join state_reach has no meaning with kind = 'interval': the reach follows from its times",
        ),
        ({"window": {"kind": "tumbling", "size": "1h"}}, {}, "join window is for kind = 'window', got 'interval'"),
        ({}, {"source": {**SOURCE}}, "join needs two [[source]], the left side and the right side, got 1"),
        (
            {},
            {"source": [{**SOURCE, "name": name, "key": []} for name in ("orders", "payments")]},
            "source.key is missing: a join pairs records whose key columns are equal",
        ),
        (
            {},
            {"lateness": {"allowed": "1h"}, "watermark": {"strategy": "monotonous"}},
            "lateness.allowed is for a window join with semantics = 'flink_datastream', got 1h",
        ),
        (
            {},
            {"window": {"kind": "session", "gap": "1h"}},
            "window.kind must be tumbling with [join], got 'session': name those of the join in [join.window]",
        ),
        (
            {},
            {"aggregates": {"orders": "count(*)"}},
            "only one of aggregates, job, process, and join can compute the rows, got aggregates and join",
        ),
        (
            {},
            {"process": {"class": "plant.alerts:Silence", "columns": {"alert": "string"}}},
            "only one of aggregates, job, process, and join can compute the rows, got process and join",
        ),
        ({"left": {"id": "bigint"}}, {}, "join.left.id has the name of another result column"),
        (
            {},
            {"time": "ingestion"},
            "time must be event with [join], got 'ingestion'",
        ),
    ],
)
def test_a_wrong_join_gets_one_sentence(join: dict[str, Any], others: dict[str, Any], problem: str) -> None:
    assert refusal(join, **others) == f"{problem} (pairs.toml)"
