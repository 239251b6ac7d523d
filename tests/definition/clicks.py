"""A definition to write otherwise, and what is said against it then."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import SpecError

CLICKS = """\
name = "clicks"

[source]
path = "/data/clicks"
event_time = "happened_at"
key = ["page"]

[window]
kind = "tumbling"
size = "1h"

[aggregates]
clicks = "count(*)"
"""

Lines = Mapping[str, str | None]
"""What is written otherwise than in `CLICKS`: dotted key to TOML value; None leaves the key out."""


def written(lines: Lines) -> dict[str, Any]:
    """`CLICKS` with some lines written otherwise."""
    content = tomllib.loads(CLICKS)
    for dotted, text in lines.items():
        *sections, key = dotted.split(".")
        place = content
        for section in sections:
            place = place.setdefault(section, {})
        if text is None:
            del place[key]
        else:
            place |= tomllib.loads(f"{key} = {text}")
    return content


def refusal(lines: Lines) -> str:
    """What is said against such a definition; it comes from the file `clicks.toml`."""
    with pytest.raises(SpecError) as refused:
        parse_definition(written(lines), "clicks.toml")
    return str(refused.value)


SOURCE = {
    "happened_at": "timestamp",
    "arrived_at": "timestamp",
    "page": "string",
    "seq": "bigint",
    "hits": "int",
    "seconds": "double",
    "ratio": "float",
    "price": "decimal(10,2)",
    "day": "date",
    "is_bot": "boolean",
    "body": "binary",
    "timing": "string",
}
"""Columns of a source, with their Spark SQL types."""


def definition(lines: Lines) -> Definition:
    """Such a definition, read."""
    return parse_definition(written(lines), "clicks.toml")


def aggregating(call: str) -> Definition:
    """`CLICKS` with this one aggregate."""
    return definition({"aggregates": f'{{ total = "{call}" }}'})
