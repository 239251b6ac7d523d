"""After the logs of a job have grown, only what is new is read of the kept batches."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.structured_streaming.recorded import JOBS, log_of
from tests.structured_streaming.test_kept_batches import part_of
from tests.structured_streaming.test_replay import TOPIC, write_definition

from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.errors import SpecError
from backstream.runs.home import Home
from backstream.structured_streaming.batch_table import BatchTable
from backstream.structured_streaming.batches import BatchLog
from backstream.structured_streaming.kept_batches import keep_batches
from backstream.workflow.inputs.job_batches import JobBatches


def slice_of(log: BatchLog, first: int, last: int) -> BatchLog:
    return replace(log, batches=tuple(batch for batch in log.batches if first <= batch.number <= last))


def require_equal(one: BatchTable, two: BatchTable) -> None:
    for field in fields(BatchTable):
        assert np.array_equal(getattr(one, field.name), getattr(two, field.name)), field.name


@pytest.mark.parametrize(("job", "last", "first"), [("sessions", 14, 10), ("orders", 30, 30), ("join", 12, 0)])
def test_a_table_grows_as_if_all_batches_were_read(job: str, last: int, first: int) -> None:
    log = log_of(job)
    known = BatchTable.from_log(slice_of(log, 0, last))

    grown = known.extend(slice_of(log, first, 99))

    assert grown
    require_equal(grown, BatchTable.from_log(log, known))
    assert len(grown.number) == len(log.batches)


def test_a_table_does_not_grow_by_batches_that_it_lacks() -> None:
    log = log_of("sessions")
    known = BatchTable.from_log(
        replace(log, batches=tuple(each for each in log.batches[:15] if each.number != 12))
    )

    assert known.extend(slice_of(log, 10, 99)) is None
    assert known.extend(slice_of(log, 13, 99)) is not None


def load(definition: Path, home: str) -> JobBatches:
    resolved = resolve_raw_paths(load_definition(definition), Home(definition.parent / home))
    job = JobBatches.load(resolved, Home(definition.parent / home), [], "here")
    assert job
    return job


def rows_of(job: JobBatches, positions: pa.Table) -> list[int]:
    return [*map(int, job._find_rows(positions))]  # noqa: SLF001 - a preparation of these records would take seconds


def positions_of(job: str, log: BatchLog, since: int) -> pa.Table:
    """Return the partitions and offsets of the records that batches from a number on have read."""
    lines = [line for file in (JOBS / job / "input").rglob("*.json") for line in file.read_text().splitlines()]
    records = [json.loads(line) for line in lines]
    batches = [log.batch_of_offset("0", "clicks", str(each["partition"]), each["offset"]) for each in records]
    own = [each for each, batch in zip(records, batches, strict=True) if batch is None or batch >= since]
    return pa.Table.from_pylist([{name: each[name] for name in ("partition", "offset")} for each in own])


def test_older_kept_batches_are_read_only_for_older_records(tmp_path: Path) -> None:
    kept, log = str(tmp_path / "kept"), log_of("sessions")
    for first, last in ((0, 4), (0, 9), (5, 14)):
        keep_batches(part_of("sessions", first, last, tmp_path / "checkpoint"), kept)
    definition = write_definition(tmp_path, "sessions", watermark=f'checkpoint = "{kept}"', **TOPIC)
    load(definition, "home")
    keep_batches(part_of("sessions", 10, 20, tmp_path / "checkpoint"), kept)
    whole = load(definition, "other_home")
    oldest = tmp_path / "kept/batches-000000000000-000000000004.jsonl"
    content = oldest.read_text()
    oldest.write_text("damaged")

    grown = load(definition, "home")

    assert grown.table.number.tolist() == [*range(21)]
    new, every = (positions_of("sessions", log, since) for since in (15, 0))
    assert rows_of(grown, new) == rows_of(whole, new)
    with pytest.raises(SpecError, match="line 1 is no kept batch"):
        rows_of(grown, every)
    oldest.write_text(content)
    assert rows_of(grown, every) == rows_of(whole, every)


def test_a_file_with_older_batches_is_noticed(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    keep_batches(part_of("sessions", 8, 14, tmp_path / "checkpoint"), kept)
    definition = write_definition(tmp_path, "sessions", watermark=f'checkpoint = "{kept}"', **TOPIC)
    assert load(definition, "home").table.number.tolist() == [*range(8, 15)]
    keep_batches(part_of("sessions", 0, 5, tmp_path / "checkpoint"), kept)

    assert load(definition, "home").table.number.tolist() == [*range(6), *range(8, 15)]
