"""The definitions of the page about sources work, and each cell of its table of formats has a test."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.prepared import events as made
from tests.prepared.events import Event, make_events
from tests.prepared.test_prepared import REST, SOURCES, write_definition

import backstream
from backstream.definition.loader import parse_definition
from backstream.runs.home import Home
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

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
    prepared = prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))
    assert prepared is not None
    assert (prepared.files, prepared.counts.read, prepared.counts.unreadable) == (1, 40, 0)


def test_the_other_examples_are_valid() -> None:
    files = {"path": "/archive/orders", "event_time": "at", "key": ["user"]}
    for block in [block for number, block in enumerate(BLOCKS) if number not in WHOLE]:
        content = tomllib.loads(f'name = "orders"\n{block}{REST_OF_DEFINITION}')
        content["source"] = files | content["source"]
        given = content["source"].keys() - files.keys()
        assert given & parse_definition(content, "docs/sources.md").source.model_fields_set == given != set()


@pytest.mark.parametrize("kind", ["json", "csv", "avro", "orc", "int96"])
def test_a_run_reads_only_prepared_files_that_may_hold_its_range(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    write, name, source = SOURCES[kind]
    amount = "payload.amount" if kind == "json" else "amount"
    definition, home = write_definition(tmp_path, source, amount), Home(tmp_path / "home")
    for number, day in enumerate((1, 2)):
        write(tmp_path / "data", f"{number}-{name}", [event for event in EVENTS if event.at.day == day])
        prepare_source(definition, home, SparkRunner(lambda: spark))

    plan = backstream.plan(definition, "2024-03-02", "2024-03-03", home=home.path, allow_unsealed=True)

    read = {plan.inputs[number].path for chunk in plan.chunks for number in chunk.files}
    (first, second) = sorted(
        tmp_path.glob("home/prepared/*/*/batch-*"),
        key=lambda folder: (folder / "_raw_files.json").stat().st_mtime_ns,
    )
    assert {Path(path).parent for path in read} == {second}
    assert any(first.glob("*.parquet"))


_FORMATS = "prepared/test_prepared.py::test_each_format_is_run_in_both_modes_with_late_and_bad_records"
_PRUNED = "prepared/test_sources_page.py::test_a_run_reads_only_prepared_files_that_may_hold_its_range"
_DAMAGED = "prepared/test_files_of_real_life.py::test_a_damaged_file_is_named_or_left_out_whole"
_ICEBERG = "sources/test_iceberg.py::test_a_table_is_run_and_its_changes_are_found"
_STORE = "sources/test_object_store.py::test_parquet_objects_are_run_and_late_ones_are_found"
TESTS_BY_FORMAT: Mapping[str, Sequence[Sequence[str]]] = {
    "Parquet": (
        ["spark/test_input_files.py::test_columns_that_were_promoted_added_or_reordered_are_read_as_one"],
        ["workflow/test_planning.py::test_a_file_of_one_instant_is_read_by_the_chunk_that_holds_it"],
        [
            "workflow/test_stale.py::test_the_windows_of_events_in_an_added_file_are_stale",
            "workflow/test_stale.py::test_no_row_changes_outside_the_stale_windows",
        ],
        [
            "workflow/test_bad_rows.py::test_every_bad_row_counts_in_its_source_partition_and_changes_no_other_row",
            "source/test_inputs.py::test_damaged_files_are_skipped_if_the_definition_allows_it",
        ],
    ),
    "Parquet with INT96, nanoseconds, computed times, or folders with columns": (
        [_FORMATS],
        [_PRUNED],
        [_FORMATS],
        [_FORMATS, _DAMAGED],
    ),
    "JSON lines": (
        [
            _FORMATS,
            "prepared/test_native_preparation.py::test_native_rows_equal_those_of_spark_and_unusual_lines_are_left_to_it",
        ],
        [
            _PRUNED,
            "prepared/test_partition_filter.py::test_a_recompute_opens_only_folders_that_may_hold_its_range_and_finds_late_data",
        ],
        [_FORMATS],
        [
            _FORMATS,
            _DAMAGED,
            "prepared/test_malformed_lines.py::test_each_malformed_line_has_its_number_and_its_file",
        ],
    ),
    "CSV": (
        [_FORMATS],
        [_PRUNED],
        [_FORMATS],
        [_FORMATS, _DAMAGED, "prepared/test_malformed_lines.py::test_a_malformed_line_of_csv_counts_the_header"],
    ),
    "ORC": ([_FORMATS], [_PRUNED], [_FORMATS], [_FORMATS, _DAMAGED]),
    "Avro": ([_FORMATS], [_PRUNED], [_FORMATS], [_FORMATS, _DAMAGED]),
    "Iceberg": (
        [_ICEBERG],
        [
            _ICEBERG,
            "sources/test_table_changes.py::test_partitions_and_files_that_cannot_meet_the_condition_are_not_read",
        ],
        [_ICEBERG],
        [_ICEBERG, "sources/test_table_changes.py::test_a_missing_data_file_names_the_snapshot"],
    ),
    "Object store": (
        [_STORE, "sources/test_object_store.py::test_compressed_json_lines_are_prepared_from_the_store"],
        [_STORE],
        [_STORE],
        [_STORE, "sources/test_object_store.py::test_old_timestamps_and_damaged_objects"],
    ),
}
"""Tests by format, for the columns read, prune, late data, and bad input. Other tools write the input of each."""


def test_each_cell_of_the_table_of_formats_has_a_test_that_exists() -> None:
    table = PAGE.partition("## Formats\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    assert rows[0] == ["format", "read", "prune", "late data", "bad input"]
    assert {cells[0]: len(cells) - 1 for cells in rows[2:]} == dict.fromkeys(TESTS_BY_FORMAT, 4)
    for cells in TESTS_BY_FORMAT.values():
        for path, name in (name.split("::") for tests in cells for name in tests):
            assert f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), name
