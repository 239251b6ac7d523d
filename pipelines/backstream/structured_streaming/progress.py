"""Read the batches in progress reports of a job: files of JSON lines, or the event log of Spark.

A report has the same watermark and offsets as the checkpoint. It does not have the files of a file source. Spark
compresses an event log since 4.0, and writes it as a folder of several files. The last file may still be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from backstream.errors import SpecError
from backstream.eventtime.instants import epoch_ms
from backstream.storage.stores import Stores, explain_reading, is_in_store
from backstream.structured_streaming.batches import Batch, BatchLog, Offset
from backstream.text import text_logger

log = text_logger(__name__)
_PROGRESS_EVENT = "QueryProgressEvent"
_MARKS = (_PROGRESS_EVENT, '"batchId"')
"""The texts that each line with a report has one of; an event log has many other lines."""
_CODECS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_UNREADABLE = (".lz4", ".lzf", ".snappy")
"""The suffixes of Spark's other codecs, whose formats no common reader knows."""
_BLOCK_BYTES = 1_024
"""Small, since a read that meets the end of an unfinished log returns nothing."""


def read_progress(location: str, stores: Stores, query_id: str | None = None) -> BatchLog:
    """Return the batches in progress reports; the last report of a number counts.

    Args:
        location: a file of progress reports or an event log, or a folder of such files: a path or an address.
        stores: the object stores.
        query_id: the query, if it is known: reports of other queries of the application are left out.

    Raises:
        SpecError: when there is no report of the query, or a line is not JSON.
    """
    reports = [report for file in _list_files(location, stores) for report in _list_reports(file, stores)]
    own = [report for report in reports if query_id is None or report.get("id") in (None, query_id)]
    if not own:
        of_query = f" {query_id}; those of another one are there" if reports else ""
        msg = f"no progress report of a streaming query{of_query} ({location})"
        raise SpecError(msg)
    try:
        batches = {report["batchId"]: _parse_report(report) for report in own if _has_run(report)}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"a progress report has another form than Spark's: {error!r} ({location})"
        raise SpecError(msg) from error
    ids = frozenset(str(report["id"]) for report in own if report.get("id"))
    return BatchLog(ids, tuple(batches[number] for number in sorted(batches)), {}, location)


def _list_files(location: str, stores: Stores) -> list[str]:
    """Return the files of a folder in their order, or the file itself."""
    root = location.rstrip("/")
    if is_in_store(location):
        with explain_reading(location):
            names = list(stores.list_versions(root))
    else:
        names = [str(file.relative_to(root)) for file in Path(root).rglob("*") if file.is_file()]
    # Hidden files, and Spark's empty files about the status of an application, are none.
    is_report = {name: not name.rpartition("/")[2].startswith((".", "_", "appstatus")) for name in names}
    return [f"{root}/{name}" for name in sorted(names, key=_number_of_file) if is_report[name]] or [location]


def _number_of_file(name: str) -> tuple[str, int, str]:
    """Return what sorts the files of a folder: `events_10_app` is after `events_2_app`."""
    folder, _, file = name.rpartition("/")
    number = file.removeprefix("events_").partition("_")[0]
    return folder, int(number) if number.isdecimal() else 0, file


def _read_text(location: str, stores: Stores) -> str:
    suffix = Path(location.removesuffix(".inprogress")).suffix
    if suffix in _UNREADABLE:
        msg = (
            f"cannot read the event log, which is compressed by {suffix[1:]}: {location}\n\n"
            "hint: let Spark compress it by zstd (spark.eventLog.compression.codec), or keep progress reports"
        )
        raise SpecError(msg)
    with explain_reading(location), stores.open_file(location) as file:
        content = bytes(file.read())
    if codec := _CODECS.get(suffix):
        content = _decompress(content, codec, location)
    return content.decode()


def _decompress(content: bytes, codec: str, location: str) -> bytes:
    """Return the content up to its end, or as far as a job has written it."""
    blocks = list[bytes]()
    with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
        try:
            while block := stream.read(_BLOCK_BYTES):
                blocks.append(block)
        except (OSError, pa.ArrowInvalid) as error:
            log.warning("the log is not complete, and read as far as it goes: %s (%s)", location, error)
    return b"".join(blocks)


def _list_reports(location: str, stores: Stores) -> Iterator[dict[str, Any]]:
    text = _read_text(location, stores)
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not any(mark in line for mark in _MARKS):
            continue
        try:
            content = json.loads(line)
        except ValueError:
            if number == len(lines) and not text.endswith("\n"):
                return  # a job is writing it
            msg = f"line {number} is not JSON: {line[:100]!r} ({location})"
            raise SpecError(msg) from None
        if isinstance(content, dict) and _PROGRESS_EVENT in str(content.get("Event", "")):
            content = content["progress"]
            content = json.loads(content) if isinstance(content, str) else content
        if isinstance(content, dict) and "batchId" in content and "sources" in content:
            yield content


def _has_run(report: Mapping[str, Any]) -> bool:
    """Return whether a report is that of a batch; before Spark 3.5, there were reports of idle times."""
    durations = report.get("durationMs")
    return durations is None or "addBatch" in durations


def _parse_report(report: Mapping[str, Any]) -> Batch:
    watermark = (report.get("eventTime") or {}).get("watermark")
    watermark_ms = epoch_ms(datetime.fromisoformat(watermark)) if watermark else 0
    ends = {str(number): _parse_end(source["endOffset"]) for number, source in enumerate(report["sources"])}
    began_ms = epoch_ms(datetime.fromisoformat(report["timestamp"])) if report.get("timestamp") else 0
    known = {name: end for name, end in ends.items() if end is not None}
    counts = [source.get("numInputRows") for source in report["sources"]]  # an event log has no sum of them
    records = sum(counts) if all(isinstance(count, int) for count in counts) else None
    start_id = report.get("runId")
    return Batch(report["batchId"], watermark_ms, known, began_ms=began_ms, records=records, start_id=start_id)


def _parse_end(end: Any) -> Offset | None:
    """Return an offset, which may be text with JSON."""
    content = json.loads(end) if isinstance(end, str) else end
    return {"logOffset": content} if isinstance(content, int) else content
