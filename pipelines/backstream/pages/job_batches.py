"""Chart the watermark of each batch of a Structured Streaming job, from the table that a preparation has made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from backstream.charts.svg import Frame
from backstream.charts.timelines import BatchTimeline, Dot, draw_batch_timeline
from backstream.definition.loader import resolve_raw_paths
from backstream.definition.model import Definition
from backstream.definition.prepared import BatchesPointer, batches_folder
from backstream.eventtime.instants import instant_text
from backstream.formatting import count_of, duration_words
from backstream.runs.home import Home
from backstream.structured_streaming.batch_table import BatchTable, load_batches

_FRAME = Frame(92, 10, 1_032, 260)
_LONG = 2
"""A batch is long if it took more than this multiple of the median."""
_MAX_LISTED = 20
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MarkedBatch:
    """A batch with what is special about it; `records` is -1 if no log has their number."""

    number: int
    began_ms: int
    watermark_ms: int
    records: int
    took: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobWatermarks:
    """The watermark of a job by batch; `counts` are the batches of each kind, `newest` the last marked ones."""

    batches: int
    first: int
    last: int
    lost: int
    counts: Mapping[str, int]
    newest: tuple[MarkedBatch, ...]
    chart: Markup


def load_job_watermarks(home: Home, definition: Definition | None) -> JobWatermarks | None:
    """Return the watermarks of a job that a definition names; None before its first preparation, or without a job.

    Raises:
        BackstreamError: when the table cannot be read.
    """
    if definition is None or not definition.watermark.job_logs:
        return None
    folder = batches_folder(resolve_raw_paths(definition, home), home)
    pointer = BatchesPointer.load(folder)
    return _describe(load_batches(home.location_of(folder / pointer.table))) if pointer else None


def _describe(table: BatchTable) -> JobWatermarks:
    took_ms = np.diff(table.arrival_ms)
    is_next = np.diff(table.number) == 1
    limit_ms = _LONG * float(np.median(took_ms[is_next])) if is_next.any() else np.inf
    is_long = np.append(is_next & (took_ms > limit_ms), False)
    flags = {"long": is_long, "empty": table.is_empty, "restarted": table.is_restart}
    marked = [
        MarkedBatch(
            int(table.number[row]),
            int(table.arrival_ms[row]),
            int(table.watermark_ms[row]),
            int(table.records[row]),
            duration_words(int(took_ms[row])) if row < len(took_ms) and is_next[row] else "",
            tuple(kind for kind, has in flags.items() if has[row]),
        )
        for row in np.flatnonzero(np.any([*flags.values()], axis=0))[-_MAX_LISTED:].tolist()
    ]
    first, last = int(table.number[0]), int(table.number[-1])
    counts = {kind: int(has.sum()) for kind, has in flags.items()}
    return JobWatermarks(
        len(table.number),
        first,
        last,
        last + 1 - len(table.number),
        counts,
        tuple(marked[::-1]),
        _draw(table, flags),
    )


def _draw(table: BatchTable, flags: Mapping[str, _Flags]) -> Markup:
    """Return the chart; of the batches and marks that share a place, it has the last one."""
    places = (table.arrival_ms - table.arrival_ms[0]) * int(_FRAME.width) // max(1, int(np.ptp(table.arrival_ms)))
    at_ms, values_ms = table.arrival_ms.tolist(), table.watermark_ms.tolist()
    dots = [
        Dot(at_ms[row], values_ms[row], kind, _title(table, row, kind))
        for kind, has in flags.items()
        for row in _last_by_place(places, np.flatnonzero(has))
    ]
    lost = np.flatnonzero(np.diff(table.number) > 1).tolist()
    return draw_batch_timeline(
        BatchTimeline(
            f"Watermark of {count_of(len(at_ms), 'batch', 'batches')}, up to {instant_text(values_ms[-1])}",
            [(at_ms[row], values_ms[row]) for row in _last_by_place(places, np.arange(len(places)))],
            dots,
            [(at_ms[row], at_ms[row + 1]) for row in lost],
        ),
        _FRAME,
    )


def _last_by_place(places: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> list[int]:
    """Return the last of the rows at each place; places ascend."""
    own = places[rows]
    found: list[int] = rows[np.append(own[1:] != own[:-1], True)[: len(rows)]].tolist()
    return found


def _title(table: BatchTable, row: int, kind: str) -> str:
    text = f"batch {table.number[row]:,}, {kind}: began {instant_text(int(table.arrival_ms[row]))}"
    return f"{text}, watermark {instant_text(int(table.watermark_ms[row]))}"
