"""Keep the watermarks of one stream while the chunks of a plan run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from backstream.source.arrival_index import ArrivalIndex, IndexFolder
from backstream.watermarks.timeline import WatermarkTimeline


@dataclass(slots=True)
class WatermarkCache:
    """The full timeline and the last arrival index of one plan's stream.

    One replay job owns it, and all chunk groups of the job share it. Chunks can run in parallel threads.
    """

    _timeline: WatermarkTimeline | None = None
    _index: tuple[IndexFolder, ArrivalIndex] | None = None
    _lock: Lock = field(default_factory=Lock)

    def full_timeline(self, compute: Callable[[], WatermarkTimeline]) -> WatermarkTimeline:
        """Return the watermarks of the whole stream, which the first caller computes."""
        # A second chunk waits for the first, since computing them reads every input file.
        with self._lock:
            if self._timeline is None:
                self._timeline = compute()
            return self._timeline

    def arrival_index(self, folder: IndexFolder, extend: Callable[[], ArrivalIndex]) -> ArrivalIndex:
        """Return the arrival index in this folder, extended once per job."""
        # Two chunks may extend it at the same time: `extend_index` locks the folder.
        if self._index is None or self._index[0] != folder:
            self._index = folder, extend()
        return self._index[1]
