"""Read the batches in progress reports of a job: files of JSON lines, or the event log of Spark.

A report has the same watermark and offsets as the checkpoint. It does not have the files of a file source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from backstream.errors import SpecError
from backstream.eventtime.instants import epoch_ms
from backstream.storage.stores import Stores, explain_reading
from backstream.structured_streaming.batches import Batch, BatchLog, Offset

_PROGRESS_EVENT = "QueryProgressEvent"


def read_progress(location: str, stores: Stores) -> BatchLog:
    """Return the batches of a file of progress reports, or of an event log; the last report of a number counts.

    Raises:
        SpecError: when there is no report in the file, or a line is not JSON.
    """
    with explain_reading(location), stores.open_file(location) as file:
        text = file.read().decode()
    reports = list(_list_reports(text, location))
    if not reports:
        msg = f"no progress report of a streaming query ({location})"
        raise SpecError(msg)
    try:
        batches = {report["batchId"]: _parse_report(report) for report in reports if _has_run(report)}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"a progress report has another form than Spark's: {error!r} ({location})"
        raise SpecError(msg) from error
    ids = frozenset(str(report["id"]) for report in reports if report.get("id"))
    return BatchLog(ids, tuple(batches[number] for number in sorted(batches)), {}, location)


def _list_reports(text: str, location: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            content = json.loads(line) if line.strip() else {}
        except ValueError:
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
    records = report.get("numInputRows")
    return Batch(
        report["batchId"],
        watermark_ms,
        known,
        began_ms=began_ms,
        records=records if isinstance(records, int) else None,
    )


def _parse_end(end: Any) -> Offset | None:
    """Return an offset, which may be text with JSON."""
    content = json.loads(end) if isinstance(end, str) else end
    return {"logOffset": content} if isinstance(content, int) else content
