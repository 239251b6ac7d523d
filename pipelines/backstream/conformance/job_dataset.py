"""Write a recorded job of Structured Streaming as what a user has: files, a checkpoint, and a definition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any

from backstream.conformance.case_dataset import VALID_TIMES, CaseDataset, toml_value
from backstream.conformance.cases import UnsupportedCaseError
from backstream.conformance.recorded_jobs import JobCase
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.structured_streaming.late_records import LateBy

_BITS = 60
_US_PER_MS = 1_000
_COLUMNS = {"ts_us": "bigint", "key": "string", "value": "bigint", "partition": "int", "place": "bigint"}


@dataclass(frozen=True, slots=True)
class _Input:
    """The records of a source in one batch of a case, and the name of their file."""

    source: Mapping[str, Any]
    name: str
    records: Sequence[Mapping[str, Any]]


def write_job_dataset(case: JobCase, folder: Path, engine: str) -> CaseDataset:
    """Write the files, the checkpoint, and the definition of a recorded job.

    Args:
        case: the recorded job.
        folder: an empty folder.
        engine: the value of `backfill.engine`.

    Raises:
        UnsupportedCaseError: when no definition can say what the case says.
    """
    window, size_ms, step_ms = _window(case.query)
    inputs = list(_list_inputs(case.line["case"]))
    ids = sorted(record["id"] for each in inputs for record in each.records)
    bit_columns = tuple(f"bits_{number}" for number in range(max(ids, default=0) // _BITS + 1))
    for each in inputs:
        file = folder / each.name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(_row(record, bit_columns)) + "\n" for record in each.records)
        file.write_text("".join(lines), encoding="utf-8")
    _write_checkpoint(case.line["spark"], folder / "checkpoint")
    interval, chunk_ms = _range_of(inputs, size_ms, step_ms)
    sources = [_source(source, folder, bit_columns) for source in case.line["case"]["sources"]]
    late_by = LateBy.OWN if case.watermarks.is_late_by_own else LateBy.PREVIOUS
    content = {
        "name": "recording",
        "source": sources if len(sources) > 1 else {key: sources[0][key] for key in sources[0] if key != "name"},
        "window": window,
        "watermark": {
            "strategy": "structured_streaming",
            "checkpoint": str(folder / "checkpoint"),
            "late_by": late_by.value,
            **_delay(case.line["case"]),
        },
        "aggregates": {name: f"sum({name})" for name in bit_columns},
        "backfill": {
            "engine": engine,
            "chunk": f"{chunk_ms}ms",
            "publish": "live" if case.mode == "update" else "first",
        },
    }
    definition = folder / "recording.toml"
    text = "".join(f"{key} = {toml_value(value)}\n" for key, value in content.items())
    definition.write_text(text, encoding="utf-8")
    return CaseDataset(definition, interval, bit_columns)


def _window(query: Mapping[str, Any]) -> tuple[dict[str, str], int, int]:
    """Return the section of the windows, their length in ms, and the distance between their starts.

    Raises:
        UnsupportedCaseError: when a length is not in whole milliseconds.
    """
    size_us = 0 if query["kind"] == "session" else query["size_us"]
    lengths_us = (size_us, query.get("slide_us") or size_us, query.get("offset_us", 0), query.get("gap_us", 0))
    if any(length_us % _US_PER_MS for length_us in lengths_us):
        msg = "windows that are not in whole milliseconds"
        raise UnsupportedCaseError(msg)
    size_ms, slide_ms, offset_ms, gap_ms = (length_us // _US_PER_MS for length_us in lengths_us)
    if gap_ms:
        return {"kind": "session", "gap": f"{gap_ms}ms"}, 0, 1
    kind = {"kind": "sliding", "slide": f"{slide_ms}ms"} if slide_ms != size_ms else {"kind": "tumbling"}
    return kind | {"size": f"{size_ms}ms", "offset": f"{offset_ms}ms"}, size_ms, slide_ms


def _delay(case: Mapping[str, Any]) -> dict[str, str]:
    """Return the delay of the only watermark of a job, with which a plan checks the logs; empty for several."""
    delay_ms = case.get("watermark_after_union")
    if delay_ms is None and len(case["sources"]) == 1:
        delay_ms = case["sources"][0]["delay_ms"]
    return {"delay": f"{delay_ms}ms"} if delay_ms else {}


def _list_inputs(case: Mapping[str, Any]) -> Iterator[_Input]:
    """Yield the files of a case; the records of a topic have their offset as `place`."""
    batches = [(step, batch) for step, each in enumerate(case["steps"]) for batch in each["batches"]]
    for source in case["sources"]:
        offsets: Counter[int] = Counter()
        for number, (step, batch) in enumerate(batches):
            records = batch.get(source["name"])
            if records is None:
                continue
            placed = []
            for record in records:
                partition = record.get("partition", 0)
                placed.append({**record, "partition": partition, "place": offsets[partition]})
                offsets[partition] += 1
            yield _Input(source, f"in/{source['name']}/step{step:03}/{number:04}.json", placed)


def _row(record: Mapping[str, Any], bit_columns: Sequence[str]) -> dict[str, Any]:
    bits = {
        name: 1 << record["id"] - place * _BITS if record["id"] // _BITS == place else 0
        for place, name in enumerate(bit_columns)
    }
    return {name: record.get(name) for name in _COLUMNS} | bits


def _source(source: Mapping[str, Any], folder: Path, bit_columns: Sequence[str]) -> dict[str, Any]:
    section = {
        "name": source["name"],
        "path": str(folder / "in" / source["name"]),
        "format": "json",
        "columns": _COLUMNS | dict.fromkeys(bit_columns, "bigint"),
        "event_time": "ts_us",
        "event_time_unit": "us",
        "key": ["key"],
        "event_time_range": [instant_text(VALID_TIMES.start_ms), instant_text(VALID_TIMES.end_ms)],
    }
    if source["kind"] != "file":
        section |= {"partition": "partition", "sequence": "place"}
    return section | ({"where": source["where_after"]} if source.get("where_after") else {})


def _write_checkpoint(spark: Mapping[str, Any], folder: Path) -> None:
    """Write the files that Spark wrote."""
    for batch in spark["batches"]:
        offsets = batch["offsets"]
        ends = ["-" if end is None else json.dumps(end) for end in offsets["offsets"]]
        _write(folder / f"offsets/{batch['batch_id']}", offsets["version"], json.dumps(offsets["metadata"]), *ends)
        if batch["commit"]:
            commit = batch["commit"]
            _write(folder / f"commits/{batch['batch_id']}", commit["version"], json.dumps(commit["metadata"]))
    for source in spark["source_logs"]:
        for entry in source["entries"]:
            place = folder / f"sources/{source['index']}/{entry['batchId']}"
            lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else ["v1"]
            _write(place, *lines, json.dumps({**entry, "path": f"file://{entry['path']}"}))


def _write(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines), encoding="utf-8")


def _range_of(inputs: Sequence[_Input], size_ms: int, step_ms: int) -> tuple[Interval, int]:
    """Return a range of whole days with all windows of a case, and the length of a chunk."""
    times_us = [record["ts_us"] for each in inputs for record in each.records if record["ts_us"] is not None]
    if not times_us:
        msg = "no record with an event time"
        raise UnsupportedCaseError(msg)
    first_ms, last_ms = min(times_us) // _US_PER_MS - size_ms, max(times_us) // _US_PER_MS
    shortest_ms = lcm(step_ms, DAY_MS)
    return Interval(first_ms // DAY_MS * DAY_MS, (last_ms // DAY_MS + 1) * DAY_MS), shortest_ms
