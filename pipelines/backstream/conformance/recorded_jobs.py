"""Parse recorded jobs of Structured Streaming, and run them by the rules in plain Python.

A recording has the input of each micro-batch, what Spark wrote to its checkpoint, and the rows of each batch. The
batch that read a record follows from the checkpoint alone, as in a replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstream.conformance.cases import Pairs, UnsupportedCaseError
from backstream.structured_streaming.batches import Batch, BatchLog, require_sound
from backstream.structured_streaming.rules import (
    BatchRecord,
    BatchWatermarks,
    EmittedWindow,
    JobWindows,
    emit_sessions,
    emit_windows,
    update_windows,
)

_RULE_OF_3_3 = "spark.sql.streaming.statefulOperator.allowMultiple"
_LIMITS = {"value < 8": 8}
"""The least value that a condition removes. It is written after the watermark; Spark applies it before that."""
_NOT_WINDOWS = {
    "join": "joins of streams",
    "join_window": "joins of streams",
    "dedup": "deduplication",
    "dedup_within": "deduplication",
    "dedup_window": "deduplication",
    "chain": "windows of windows",
}


@dataclass(frozen=True, slots=True)
class JobCase:
    """A recorded job with windows or sessions.

    `records` are those that a batch has read. `query` and `mode` are in the words of the recording, and `line` is
    all of it.
    """

    name: str
    records: tuple[BatchRecord, ...]
    watermarks: BatchWatermarks
    query: Mapping[str, Any]
    mode: str
    line: Mapping[str, Any] = field(default_factory=dict)

    def list_windows(self) -> list[EmittedWindow]:
        """Return what the job emitted, by the rules."""
        if self.query["kind"] == "session":
            return list(emit_sessions(self.records, self.watermarks, self.query["gap_us"]))
        size_us = self.query["size_us"]
        windows = JobWindows(size_us, self.query.get("slide_us") or size_us, self.query.get("offset_us", 0))
        emit = update_windows if self.mode == "update" else emit_windows
        return emit(self.records, self.watermarks, windows)


@dataclass(frozen=True, slots=True)
class JobRows:
    """The windows that an engine found."""

    windows: Sequence[EmittedWindow]

    def pairs(self, _case: JobCase, spark: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Spark: the rows of each batch."""
        rows = [
            EmittedWindow(batch["batch_id"], row["key"], row["start_us"], row["end_us"], tuple(row["ids"]))
            for batch in spark["batches"]
            for row in batch["rows"]
        ]
        return {"rows": (sorted(rows, key=str), sorted(self.windows, key=str))}


def parse_job(line: Mapping[str, Any]) -> JobCase:
    """Parse a recorded job.

    Raises:
        UnsupportedCaseError: when the job has no windows, or emits all rows again in each batch.
        SpecError: when its logs contradict each other.
    """
    case, spark = line["case"], line["spark"]
    if reason := _NOT_WINDOWS.get(case["query"]["kind"]):
        raise UnsupportedCaseError(reason)
    if case["output_mode"] == "complete":
        msg = "output mode complete: no record is late, and no window ends"
        raise UnsupportedCaseError(msg)
    log = require_sound(_to_log(spark))
    is_late_by_own = case.get("conf", {}).get(_RULE_OF_3_3) == "false"
    watermarks = BatchWatermarks([batch.watermark_ms for batch in log.batches], is_late_by_own)
    records = tuple(_list_records(case, log))
    return JobCase(case["name"], records, watermarks, case["query"], case["output_mode"], line)


def _to_log(spark: Mapping[str, Any]) -> BatchLog:
    batches = [
        Batch(
            number=each["batch_id"],
            watermark_ms=each["offsets"]["metadata"]["batchWatermarkMs"],
            ends={
                str(source): end for source, end in enumerate(each["offsets"]["offsets"]) if isinstance(end, dict)
            },
            next_watermark_ms=each["commit"] and each["commit"]["metadata"]["nextBatchWatermarkMs"],
            is_finished=each["commit"] is not None,
        )
        for each in spark["batches"]
    ]
    files = {
        str(source["index"]): {entry["path"]: entry["batchId"] for entry in source["entries"]}
        for source in spark["source_logs"]
    }
    return BatchLog(frozenset(), tuple(batches), files, "recording")


def _list_records(case: Mapping[str, Any], log: BatchLog) -> Iterator[BatchRecord]:
    """Yield the records that a batch has read and that pass the filter of their source."""
    for number, source in enumerate(case["sources"]):
        limit = _LIMITS[source["where_after"]] if source.get("where_after") else None
        for record, batch in _list_reads(case, log, str(number), source):
            if batch is not None and (limit is None or record["value"] < limit):
                yield BatchRecord(record["id"], record["key"], record["ts_us"], batch)


def _list_reads(
    case: Mapping[str, Any], log: BatchLog, source_number: str, source: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], int | None]]:
    """Yield the records of a source with the batch that read each."""
    offsets: Counter[int] = Counter()
    inputs = [(step, inputs) for step, each in enumerate(case["steps"]) for inputs in each["batches"]]
    for number, (step, by_source) in enumerate(inputs):
        path = f"/data/in/{source['name']}/step{step:03}/{number:04}.json"
        for record in by_source.get(source["name"]) or ():
            if source["kind"] == "file":
                yield record, log.batch_of_file(source_number, path)
                continue
            partition = record.get("partition", 0)
            yield record, log.batch_of_offset(source_number, source["name"], str(partition), offsets[partition])
            offsets[partition] += 1
