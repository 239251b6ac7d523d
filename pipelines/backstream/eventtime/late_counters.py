"""Count late records as the metric `numLateRecordsDropped` of a window aggregate of Flink SQL does.

In one phase, it counts records. In two phases, which is the default, a first aggregation makes rows by key and
slice, and the metric counts these rows. They leave it when the watermark enters another slice, and at checkpoints.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from backstream.eventtime.windows import FixedWindow


def count_late_partials(dropped: Iterable[tuple[Hashable, int, int]], window: FixedWindow) -> int:
    """Return the number of pre-aggregated rows of dropped records, in a job without checkpoints.

    Args:
        dropped: key, event time, and watermark in force of each dropped record.
        window: the windows.
    """
    slice_ms = window.slice_ms

    def flush_of(watermark_ms: int) -> int | None:
        # The first phase has the watermark 0 at first, and ignores all up to it.
        return None if watermark_ms <= 0 else (watermark_ms + 1) // slice_ms

    return len(
        {
            (key, (event_ms - window.offset_ms) // slice_ms, flush_of(watermark_ms))
            for key, event_ms, watermark_ms in dropped
        }
    )
