"""Whole jobs of Structured Streaming that were recorded, with their checkpoints, reports, inputs, and rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backstream.storage.stores import Stores
from backstream.structured_streaming.batches import BatchLog, merge_logs, require_sound
from backstream.structured_streaming.checkpoint import read_checkpoint
from backstream.structured_streaming.progress import read_progress
from backstream.structured_streaming.rules import BatchRecord, EmittedWindow

JOBS = Path(__file__).parent / "jobs"


def checkpoint_of(job: str) -> BatchLog:
    """Return the batches in the checkpoint of a job."""
    return read_checkpoint(str(JOBS / job / "checkpoint"), Stores())


def progress_of(job: str) -> BatchLog:
    """Return the batches in the progress reports of a job."""
    return read_progress(str(JOBS / job / "progress.jsonl"), Stores())


def log_of(job: str) -> BatchLog:
    """Return all batches of a job."""
    return require_sound(merge_logs([checkpoint_of(job), progress_of(job)]))


def records_of(job: str, log: BatchLog) -> Iterator[BatchRecord]:
    """Yield the records of the first source of a job with the batches that read them."""
    folder = JOBS / job / "input"
    for file in sorted(folder.rglob("*.json")):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            batch = (
                log.batch_of_offset("0", "clicks", str(record["partition"]), record["offset"])
                if "offset" in record
                else log.batch_of_file("0", str(file.relative_to(JOBS)))
            )
            if batch is not None:
                yield BatchRecord(record["id"], record["key"], record["ts_us"], batch)


def rows_of(job: str) -> set[EmittedWindow]:
    """Return the rows that a job emitted."""
    lines: Iterator[dict[str, Any]] = map(json.loads, (JOBS / job / "emitted.jsonl").read_text().splitlines())
    return {
        EmittedWindow(row["batch_id"], row["key"], row["start_us"], row["end_us"], tuple(row["ids"]))
        for row in lines
    }
