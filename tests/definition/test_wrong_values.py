"""Any value of any key of a definition is accepted, or refused by a short message."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.definition.clicks import written

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import SpecError

SCHEMA = Definition.model_json_schema()


def paths(schema: dict[str, Any], depth: int = 0) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key in a JSON schema, through all forms of a section."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    for form in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from paths(form, depth)
    for name, inner in schema.get("properties", {}).items():
        yield (name,)
        if depth < 3:
            yield from ((name, *rest) for rest in paths(inner, depth + 1))


PATHS = sorted({*paths(SCHEMA)})
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["1h", "-1h", "0s", "1mo", "9" * 30, "a.b", "`", "count(", "count(*)", "2024-03-01", "%Y", "\0"]
    ),
)
PLAIN = st.one_of(st.booleans(), st.integers(), st.floats(), TEXTS)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=9), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=600, derandomize=True)
@given(st.sampled_from(PATHS), VALUES)
def test_a_wrong_value_is_refused_by_a_short_message(path: tuple[str, ...], value: Any) -> None:
    content: dict[str, Any] = copy.deepcopy(written({}))
    section = content
    for name in path[:-1]:
        inner = section.get(name)
        section[name] = inner if isinstance(inner, dict) else {}
        section = section[name]
    section[path[-1]] = value
    try:
        parse_definition(content, "clicks.toml")
    except SpecError as error:
        assert len(str(error).splitlines()) <= 15  # noqa: PT017 - an accepted value is fine
        assert "Traceback" not in str(error)  # noqa: PT017
