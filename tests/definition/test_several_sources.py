"""Definitions with several sources: one source of prepared files, and what is rejected."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.definition.clicks import CLICKS

from backstream.definition.loader import (
    apply_overrides,
    json_schema,
    load_definition,
    parse_definition,
    resolve_paths,
)
from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.runs.home import Home
from backstream.runs.plan import Mode

PAGE = Path(__file__).parents[2] / "docs" / "several-sources.md"
WEB = {"name": "web", "path": "/data/web", "event_time": "at", "arrival_time": "received", "key": ["page"]}
APP = {**WEB, "name": "app", "path": ["/data/ios", "/data/android"], "event_time": "happened"}


def content(**app: Any) -> dict[str, Any]:
    """Return a definition with two sources, the second one with other keys."""
    return {**tomllib.loads(CLICKS), "source": [dict(WEB), {**APP, **app}]}


def refusal(definition: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as refused:
        parse_definition(definition, "clicks.toml")
    return str(refused.value)


def test_the_example_of_the_page_is_a_union_with_two_strategies(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "orders.toml"
    path.write_text(example)

    definition = load_definition(path)

    assert [(source.name, source.strategy) for source in definition.emission.sources] == [
        ("web", WatermarkStrategy(StrategyKind.BOUNDED, 300_000, 200, 3_600_000)),
        ("shop", WatermarkStrategy(StrategyKind.BOUNDED, 2_400_000, 200, 0)),
    ]
    assert definition.idle_timeouts == {"web": 3_600_000, "shop": 0}


def test_a_union_reads_a_prepared_folder_per_source(tmp_path: Path) -> None:
    definition = parse_definition(content(), "clicks.toml")

    resolved = resolve_paths(definition, Home(tmp_path))

    folders = [Path(path) for path in resolved.source.paths]
    assert [folder.parent for folder in folders] == [tmp_path / "prepared" / "clicks"] * 2
    assert len(set(folders)) == 2
    assert (resolved.source.partition, resolved.source.key) == ("prepared_partition", ("page",))
    assert parse_definition(resolved.model_dump(mode="json"), "plan") == resolved


def watermark_of_app(**watermark: Any) -> Definition:
    return parse_definition(
        content(watermark={"strategy": "bounded_out_of_orderness", **watermark}), "clicks.toml"
    )


def test_the_watermarks_of_a_source_do_not_change_its_prepared_files(tmp_path: Path) -> None:
    def folders(definition: Definition) -> tuple[str, ...]:
        return resolve_paths(definition, Home(tmp_path)).source.paths

    assert folders(watermark_of_app()) == folders(watermark_of_app(delay="1h", idle_timeout="2h"))
    marked = [watermark_of_app(strategy="punctuated", marker="is_last", delay=delay) for delay in ("1m", "2m")]
    assert folders(marked[0])[1] != folders(marked[1])[1]
    assert folders(marked[0])[0] == folders(marked[1])[0]


def without_name(definition: dict[str, Any]) -> None:
    del definition["source"][1]["name"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_name, "source.1.name is missing: each of several sources needs a name"),
        (
            lambda each: each["source"][1].update(name="web"),
            "source.1.name must differ from other sources, got 'web' twice",
        ),
        (lambda each: each["source"][1].update(name="Web!"), "source.1.name must be lower-case words"),
        (lambda each: each["source"][1].update(key=["user"]), "source.1.key must be the same in all sources"),
        (lambda each: each["source"][1].pop("path"), "source.1.path is missing"),
        (lambda each: each["source"].append("web"), "source.2 must be a table, got 'web'"),
        (lambda each: each.update(source=[]), "source must be a table, got []"),
        (
            lambda each: each.update(source=dict(WEB)),
            "source.name has no meaning with one source: write [[source]] for several",
        ),
        (
            lambda each: each["source"][1].update(watermark={"strategy": "custom"}),
            "source.1.watermark strategy must not be 'custom' for one of several sources",
        ),
        (
            lambda each: each["source"][1].update(watermark={"strategy": "punctuated"}),
            "source.1.watermark marker is missing with strategy = 'punctuated'",
        ),
        (
            lambda each: each.update(watermark={"strategy": "monotonous", "emit": "on_event"}),
            "watermark.emit = 'on_event' is not possible with several sources",
        ),
        (
            lambda each: each.update(watermark={"finished_partitions": "release"}),
            "watermark.finished_partitions = 'release' is not possible with several sources",
        ),
        (
            lambda each: each.update(watermark={"strategy": "flink_sql", "topology": "operator"}),
            "watermark.topology = 'operator' is not possible with 'flink_sql' watermarks of several sources",
        ),
        (
            lambda each: each.update(watermark={"strategy": "per_source"}),
            "watermark.strategy must be 'none', 'monotonous', 'bounded_out_of_orderness', 'punctuated',",
        ),
        (
            lambda each: each.update(quality={"expected_partitions": ["web/0", "ios/0"]}),
            "quality.expected_partitions must begin with the name of a source, such as web/0, got 'ios/0'",
        ),
        (
            lambda each: (
                each.update(time="processing"),
                each["source"][1].update(watermark={"strategy": "monotonous"}),
            ),
            'watermark.strategy must be "none" with time = "processing", in which no record is late',
        ),
    ],
)
def test_what_several_sources_cannot_have_is_named(change: Callable[[dict[str, Any]], object], said: str) -> None:
    definition = content()
    change(definition)

    assert refusal(definition).startswith(said)


def test_watermarks_that_no_source_uses_are_rejected() -> None:
    definition = content(watermark={"strategy": "monotonous"})
    definition["source"][0]["watermark"] = {"strategy": "monotonous"}
    definition["watermark"] = {"strategy": "monotonous"}

    assert refusal(definition) == (
        "watermark.strategy has no meaning, because each source has its own, got 'monotonous' (clicks.toml)"
    )


def test_watermarks_of_several_sources_cannot_be_overridden() -> None:
    definition = parse_definition(content() | {"watermark": {"strategy": "monotonous"}}, "clicks.toml")

    with pytest.raises(SpecError) as refused:
        apply_overrides(definition, {"watermark.idle_timeout": "1h"}, Mode.REPLAY)
    assert str(refused.value) == (
        "watermark.idle_timeout cannot be overridden with several sources: change the definition,"
        " got '1h' (overrides of clicks)"
    )


def test_editors_accept_one_source_and_several() -> None:
    assert '"type": "array",\n          "items": {\n            "$ref": "#/$defs/Source"' in json_schema()
