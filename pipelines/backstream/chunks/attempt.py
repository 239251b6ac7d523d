"""Define an attempt to run a chunk group, and the places of its files.

Each attempt writes into its own folders, so files of a failed attempt are never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backstream.eventtime.instants import DAY_MS, utc_datetime
from backstream.native.sql import STAGING_CHUNK, STAGING_DAY
from backstream.runs.plan import Chunk, Plan
from backstream.runs.table_schemas import PANES, WINDOWS
from backstream.storage.stores import NO_STORES, Stores, is_below

_MAX_EVENTS_OF_SMALL_DAY = 10_000
"""The largest number of events of a day whose file the driver splits off; this is faster than a Spark write."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to run a chunk group; its files are in one folder per table."""

    plan: Plan
    chunks: Sequence[Chunk]
    attempt: str
    is_unfinished: bool = False
    """True if rows of windows and panes have no derived columns yet, so that their files are not staged."""
    stores: Stores = NO_STORES

    def folder(self, suffix: str) -> Path:
        """Return the folder on a disk for the files of a table; its name has the first chunk."""
        if self.is_unfinished and suffix in (WINDOWS, PANES):
            return self.scratch / "unfinished" / (suffix or "windows")
        return self._staging(suffix)

    def location(self, suffix: str) -> str:
        """Return the folder or the address where the staged files of a table remain, also after publication.

        It is the folder on a disk if the table is there, if this process doesn't have the address of the
        warehouse, and for unfinished rows.
        """
        place = self.plan.stored_staging(suffix)
        if not is_below(place, self.stores.warehouse) or (self.is_unfinished and suffix in (WINDOWS, PANES)):
            return str(self.folder(suffix))
        return f"{place}/{self._name}"

    @property
    def scratch(self) -> Path:
        """The folder of temporary files of the driver, which tasks use too if executors share the home."""
        return self._staging(WINDOWS).with_suffix(".scratch")

    @property
    def task_scratch(self) -> str:
        """The folder or the address of files that the driver and the tasks exchange."""
        if self.plan.home.is_shared:
            return str(self.scratch)
        return f"{self.location(WINDOWS)}.scratch"

    def _staging(self, suffix: str) -> Path:
        return self.plan.staging(suffix) / self._name

    @property
    def _name(self) -> str:
        return f"{self.chunks[0].chunk_id}-{self.attempt}"

    def columns(self, suffix: str) -> Sequence[tuple[str, str, int, bool]]:
        """Return name, type, field id, and necessity of the columns that a table has now."""
        definition = self.plan.definition
        missing = {*definition.get("derive_after", {}), (definition.get("top") or {}).get("rank")}
        columns = self.plan.tables[suffix].columns
        return [each for each in columns if not (self.is_unfinished and each[0].partition("__")[0] in missing)]

    def only_folder(self, suffix: str) -> Path | None:
        """Return the only subfolder for the rows of a table; None if they are split by chunk or day."""
        start_ms, end_ms = self.chunks[0].start_ms, self.chunks[-1].end_ms
        if len(self.chunks) > 1:
            return None
        chunk_folder = self.folder(suffix) / f"{STAGING_CHUNK}=0"
        if self.plan.tables[suffix].day_column is None:
            return chunk_folder
        day_ms = start_ms - start_ms % DAY_MS
        return chunk_folder / f"{STAGING_DAY}={utc_datetime(day_ms).date()}" if end_ms <= day_ms + DAY_MS else None

    @property
    def has_small_files(self) -> bool:
        """True if the chunks span several days with few events each."""
        days = (self.chunks[-1].end_ms - self.chunks[0].start_ms) / DAY_MS
        return days > 1 and sum(chunk.expected_events for chunk in self.chunks) <= days * _MAX_EVENTS_OF_SMALL_DAY

    def __str__(self) -> str:
        ids = [chunk.chunk_id for chunk in self.chunks]
        chunks = f"chunk {ids[0]}" if len(ids) == 1 else f"chunks {ids[0]} to {ids[-1]}"
        return f"{chunks} of {self.plan.run_id}"
