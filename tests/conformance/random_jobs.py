"""Make random jobs of Structured Streaming: batches with any watermarks, and the rows that follow by the rules."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Any

from backstream.structured_streaming.rules import (
    BatchRecord,
    BatchWatermarks,
    JobWindows,
    emit_sessions,
    emit_windows,
    update_windows,
)

SECOND_US = 1_000_000
START_S = (0, 1_700_000_000, -200)


def recorded_job(rng: Random) -> dict[str, Any]:
    """Return a job in the form of a recording: files or offsets, empty batches, nulls, jumps of the watermark."""
    is_topic, batches, start_s = rng.random() < 0.5, rng.randint(2, 9), rng.choice(START_S)
    watermarks_ms = [0, *accumulate(rng.choice((0, 0, 1_000, 4_000, 9_999)) for _ in range(batches - 1))]
    watermarks_ms = [max(0, start_s * 1_000) * (number > 0) + each for number, each in enumerate(watermarks_ms)]
    own_batch = rng.random() < 0.3
    reads: list[list[dict[str, Any]]] = []
    records: list[tuple[int, dict[str, Any]]] = []
    for batch in range(batches):
        read: list[dict[str, Any]] = [
            {
                "id": len(records) + place,
                "key": rng.choice("ab"),
                "ts_us": None if rng.random() < 0.05 else _time_us(rng, start_s, watermarks_ms[batch]),
                "value": 1,
                "partition": rng.randint(0, 2) if is_topic else 0,
            }
            for place in range(rng.choice((0, 1, 3, 6)))
        ]
        records += [(batch, each) for each in read]
        reads.append(read)
    size_us, is_session = rng.choice((1, 5, 10)) * SECOND_US, rng.random() < 0.5
    own_batch &= not is_session  # a definition cannot have both
    mode = "append" if is_session else rng.choice(("append", "append", "update"))
    read_records = [BatchRecord(each["id"], each["key"], each["ts_us"], batch) for batch, each in records]
    watermarks = BatchWatermarks(watermarks_ms, is_late_by_own=own_batch)
    if is_session:
        rows = [*emit_sessions(read_records, watermarks, size_us)]
        query = {"kind": "session", "gap_us": size_us}
    else:
        slide_us = size_us // rng.choice((1, 1, 2, 5))
        windows = JobWindows(size_us, slide_us, rng.choice((0, 0, slide_us // 2)))
        rows = (emit_windows if mode == "append" else update_windows)(read_records, watermarks, windows)
        query = {
            "kind": "window",
            "size_us": windows.size_us,
            "slide_us": windows.slide_us,
            "offset_us": windows.offset_us,
        }
    return {
        "case": {
            "name": "random",
            "output_mode": mode,
            "conf": {"spark.sql.streaming.statefulOperator.allowMultiple": "false"} if own_batch else {},
            "sources": [{"name": "a", "kind": "partitions" if is_topic else "file", "delay_ms": 1}],
            "query": query,
            "steps": [{"batches": [{"a": read or None} for read in reads]}],
            "watermark_after_union": 0,  # the watermarks are not those of a delay
        },
        "spark": {
            "batches": [
                {
                    "batch_id": number,
                    "offsets": {
                        "version": "v1",
                        "metadata": {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 0},
                        "offsets": [_end(reads[: number + 1], is_topic=is_topic)],
                    },
                    "commit": {"version": "v1", "metadata": {"nextBatchWatermarkMs": next_ms}},
                    "rows": [
                        {"key": row.key, "start_us": row.start_us, "end_us": row.end_us, "ids": list(row.records)}
                        for row in rows
                        if row.batch == number
                    ],
                }
                for number, (watermark_ms, next_ms) in enumerate(
                    zip(watermarks_ms, [*watermarks_ms[1:], watermarks_ms[-1]], strict=True)
                )
            ],
            "source_logs": [] if is_topic else [{"index": 0, "entries": _list_files(reads)}],
        },
    }


def _time_us(rng: Random, start_s: int, watermark_ms: int) -> int:
    """Return an event time near the watermark, often at the border of a window."""
    near_s = max(start_s, watermark_ms // 1_000) + rng.randint(-12, 15)
    return near_s * SECOND_US + rng.choice((0, 0, -1, 1, 1_000, 300_000, -1_000))


def _end(reads: list[list[dict[str, Any]]], *, is_topic: bool) -> dict[str, Any]:
    if not is_topic:
        return {"logOffset": sum(map(bool, reads)) - 1}
    partitions = [each["partition"] for read in reads for each in read]
    return {"a": {str(number): partitions.count(number) for number in range(3)}}


def _list_files(reads: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the files of the batches with records, with the source's own numbers."""
    named = [f"/data/in/a/step000/{number:04}.json" for number, read in enumerate(reads) if read]
    return [{"path": path, "timestamp": 1, "batchId": own} for own, path in enumerate(named)]
