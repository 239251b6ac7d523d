"""A definition as a plan keeps it, as a hash names it, and as an editor checks it."""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
from tests.definition.clicks import Lines, written

from backstream.definition.loader import json_schema, parse_definition
from backstream.definition.model import Definition
from backstream.eventtime.instants import HOUR_MS, MINUTE_MS
from backstream.eventtime.windows import Sliding, Tumbling
from backstream.runs.home import bundled_folder

EVERYTHING: Lines = {
    "window": '{ kind = "sliding", size = "90m", slide = "30m", offset = "-10m" }',
    "watermark": '{ strategy = "monotonous", idle_timeout = "1m30s" }',
    "watermark.clock_start": '"2013-02-01T05:00:00.001Z"',
    "source.event_time_range": '["1969-07-20T20:17:40Z", "2100-01-01"]',
    "quality.expected_partitions": '["EWR", "JFK"]',
    "quality.expected": '{ path = "timetable", event_time = "at" }',
    "backfill": '{ chunk = "7d", mode = "replay", keep_firings = true }',
}


@pytest.mark.parametrize("lines", [{}, EVERYTHING])
def test_a_definition_is_unchanged_after_storage_in_a_plan(lines: Lines) -> None:
    clicks = parse_definition(written(lines), "clicks.toml")

    kept = json.loads(json.dumps(clicks.model_dump(mode="json")))

    assert parse_definition(kept, "plan") == clicks
    assert parse_definition(kept, "plan").definition_hash == clicks.definition_hash


def test_durations_and_instants_are_kept_as_a_person_writes_them() -> None:
    kept = parse_definition(written(EVERYTHING), "clicks.toml").model_dump(mode="json")

    size = {"size": "1h30m", "slide": "30m", "offset": "-10m"}
    assert kept["window"] == {"kind": "sliding", **size, "time_zone": None}
    assert kept["watermark"]["clock_start"] == "2013-02-01T05:00:00.001Z"
    assert kept["source"]["event_time_range"] == ["1969-07-20T20:17:40Z", "2100-01-01T00:00Z"]


def definition_hash(lines: Lines) -> str:
    return parse_definition(written(lines), "clicks.toml").definition_hash


def test_the_hash_does_not_depend_on_spelling() -> None:
    plain = definition_hash({})

    assert definition_hash({"window.size": '"60m"'}) == plain
    assert definition_hash({"lateness.allowed": '"0s"', "backfill.chunk": '"24h"'}) == plain


def test_a_later_release_with_another_key_keeps_the_hash() -> None:
    class Later(Definition):
        new_key: str = "off"

    clicks = parse_definition(written({}), "clicks.toml")
    later = Later.model_validate(clicks.model_dump(mode="json"))

    assert later.definition_hash == clicks.definition_hash
    assert later.model_copy(update={"new_key": "on"}).definition_hash != clicks.definition_hash


@pytest.mark.parametrize(
    "lines",
    [
        {"window.size": '"61m"', "backfill.chunk": '"61d"'},
        {"description": '"clicks per page"'},
        {"aggregates.clicks": '"count(1)"'},
        {"aggregates.visitors": '"count(distinct visitor)"'},
        {"source.key": "[]"},
        {"quality.late_ratio": "{ warn = 0.05, fail = 0.26 }"},
    ],
)
def test_the_hash_depends_on_every_value(lines: Lines) -> None:
    assert definition_hash(lines) != definition_hash({})


@pytest.mark.parametrize(
    ("window", "cells"),
    [
        ('{ kind = "tumbling", size = "90m", offset = "5m" }', Tumbling(90 * MINUTE_MS, 5 * MINUTE_MS)),
        ('{ kind = "sliding", size = "90m", slide = "30m" }', Sliding(90 * MINUTE_MS, 30 * MINUTE_MS)),
        ('{ kind = "cumulate", size = "1h", step = "5m" }', Tumbling(HOUR_MS)),
        ('{ kind = "session", gap = "5m" }', Tumbling(HOUR_MS)),
    ],
)
def test_counts_are_kept_for_windows_on_a_grid_whatever_the_kind(window: str, cells: Tumbling | Sliding) -> None:
    chunk = '"3d"'  # a multiple of all of these
    definition = parse_definition(written({"window": window, "backfill.chunk": chunk}), "clicks.toml")
    assert definition.metric_windows == cells


def fits_schema(content: Mapping[str, Any]) -> bool:
    """Whether an editor that knows the schema has nothing to say against it."""
    jsonschema = importlib.import_module("jsonschema")  # by name: it ships no types
    return bool(jsonschema.Draft202012Validator(json.loads(json_schema())).is_valid(content))


def test_an_editor_with_the_schema_takes_what_a_person_writes_and_nothing_else() -> None:
    assert fits_schema(tomllib.loads((bundled_folder("definitions") / "flights.toml").read_text()))
    assert fits_schema(written(EVERYTHING))
    assert not fits_schema(written({"window.size": "60"}))
    assert not fits_schema(written({"window.size": '"1 hour"'}))
    assert not fits_schema(written({"widnow": '"1h"'}))


def test_the_schema_shows_defaults_as_a_person_writes_them() -> None:
    sections = json.loads(json_schema())["$defs"]

    assert sections["Backfill"]["properties"]["chunk"]["default"] == "1d"
    assert sections["WatermarkSection"]["properties"]["emit_interval"]["default"] == "200ms"
    assert sections["Source"]["properties"]["event_time_range"]["default"] == [
        "1970-01-01T00:00Z",
        "2100-01-01T00:00Z",
    ]
