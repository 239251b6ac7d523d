"""The definitions of the page about sources work, and the table of formats names tests that exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.prepared import events as made
from tests.prepared.events import Event, make_events
from tests.prepared.test_prepared import REST, SOURCES, write_definition

import backstream
from backstream.definition.loader import parse_definition
from backstream.runs.home import Home
from backstream.workflow.prepare import prepare_source

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/sources.md").read_text(encoding="utf-8")
BLOCKS: Sequence[str] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
WHOLE = (0, 1, 3)
"""The numbers of the blocks that are a whole source; the others only add keys."""
EVENTS = make_events(40)
REST_OF_DEFINITION = REST.format(amount="1")
CSV_COLUMNS = '[source.columns]\nat = "string"\nreceived_s = "double"\n'


def write_archive(folder: Path, events: Sequence[Event]) -> None:
    """Write the files of all examples; those of Kafka Connect are in the folders of their partitions."""
    made.write_json(folder / "archive/orders", "events.json", events)
    made.write_csv(folder / "archive/orders", "events.csv", events)
    made.write_json(folder / "archive/topics/orders/partition=0", "orders+0+0000000000.json", events)


def whole_definition(block: str) -> str:
    rest = REST_OF_DEFINITION.replace("[aggregates]", "[other]") if "[aggregates]" in block else REST_OF_DEFINITION
    columns = CSV_COLUMNS if 'format = "csv"' in block else ""
    text = f'name = "orders"\n{block}\n{columns}{rest}'
    return re.sub(r"\[other\]\n(?:\w+ = .*\n)*", "", text)


@pytest.mark.parametrize("number", WHOLE)
def test_the_examples_read_the_files_that_they_describe(number: int, spark: SparkSession, tmp_path: Path) -> None:
    write_archive(tmp_path, EVENTS)
    definition = tmp_path / "orders.toml"
    definition.write_text(whole_definition(BLOCKS[number]).replace("/archive", f"{tmp_path}/archive"))
    prepared = prepare_source(definition, Home(tmp_path / "home"), lambda: spark)
    assert prepared is not None
    assert (prepared.files, prepared.counts.read, prepared.counts.unreadable) == (1, 40, 0)


def test_the_other_examples_are_valid() -> None:
    files = {"path": "/archive/orders", "event_time": "at", "key": ["user"]}
    for block in [block for number, block in enumerate(BLOCKS) if number not in WHOLE]:
        content = tomllib.loads(f'name = "orders"\n{block}{REST_OF_DEFINITION}')
        content["source"] = files | content["source"]
        source = parse_definition(content, "docs/sources.md").source
        assert source.transform or source.partition_filter


@pytest.mark.parametrize("kind", ["json", "csv", "avro", "orc", "int96"])
def test_a_run_reads_only_prepared_files_that_may_hold_its_range(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    write, name, source = SOURCES[kind]
    amount = "payload.amount" if kind == "json" else "amount"
    definition, home = write_definition(tmp_path, source, amount), Home(tmp_path / "home")
    for number, day in enumerate((1, 2)):
        write(tmp_path / "data", f"{number}-{name}", [event for event in EVENTS if event.at.day == day])
        prepare_source(definition, home, lambda: spark)

    plan = backstream.plan(definition, "2024-03-02", "2024-03-03", home=home.path, allow_unsealed=True)

    read = {plan.inputs[number].path for chunk in plan.chunks for number in chunk.files}
    (first, second) = sorted(
        tmp_path.glob("home/prepared/*/*/batch-*"),
        key=lambda folder: (folder / "_raw_files.json").stat().st_mtime_ns,
    )
    assert {Path(path).parent for path in read} == {second}
    assert any(first.glob("*.parquet"))


def test_the_table_of_formats_names_tests_that_exist() -> None:
    table = PAGE.partition("## Formats and their tests")[2].partition("\n## ")[0]
    cells = re.findall(r"\[[^\]]+\]\(\.\./(tests/[\w/]+\.py)\) `(test_\w+)`", table)
    assert len(cells) >= 20
    missing = [name for path, name in cells if f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")]
    assert missing == []
