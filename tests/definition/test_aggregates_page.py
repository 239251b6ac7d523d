"""The definition and the refused expressions of the page on aggregates."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from backstream.definition.aggregates import holistic_aggregates
from backstream.definition.columns import require_columns, value_columns
from backstream.definition.loader import parse_definition
from backstream.errors import SpecError

PAGE = Path(__file__).parents[2].joinpath("docs/aggregates.md").read_text(encoding="utf-8")
CONTENT = tomllib.loads(PAGE.partition("```toml\n")[2].partition("```")[0])
SOURCE = {
    "ordered_at": "timestamp",
    "received_at": "timestamp",
    "shop": "string",
    "seq": "bigint",
    "country": "string",
    "amount": "double",
    "items": "int",
    "customer": "bigint",
    "order_id": "bigint",
}
REFUSED = re.findall(r"^\| `(.+)` \| (.+) \|$", PAGE.partition("## Refused expressions")[2], re.MULTILINE)


def test_the_definition_of_the_page_is_valid() -> None:
    orders = parse_definition(CONTENT, "page")

    require_columns(orders, SOURCE, "page")
    types = {column.name: column.type for column in value_columns(orders, SOURCE)}
    assert types["shops"] == "list<string>"
    assert types["refund_share"] == "double"
    assert types["day"] == "date"
    listed = ", ".join(holistic_aggregates(orders))
    assert f"computed from all records of each window, on Spark: {listed}\n" in PAGE


@pytest.mark.parametrize(("expression", "error"), REFUSED)
def test_the_page_has_the_errors_of_refused_expressions(expression: str, error: str) -> None:
    orders = parse_definition(
        {
            **CONTENT,
            "aggregates": {
                "orders": "count(*)",
                "revenue": "sum(amount)",
                "refunds": "sum(amount)",
                "total": expression,
            },
        },
        "page",
    )

    with pytest.raises(SpecError) as refused:
        require_columns(orders, SOURCE, "page")

    assert str(refused.value) == f"aggregates.total {error}, got {expression!r} (page)"
    assert len(REFUSED) == 6
