"""The size of a published history, and the folder with its home, source, and definition."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home

NAME = "growth"
TRIGGER = "growth"
FIRST_DAY_MS = instant_ms("2015-01-01", "first day")
EVENTS_BEFORE = 48
KEYS = 20
"""The number of keys of the input events."""
US_PER_MS = 1_000
INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a published history in rows, days and runs. If all three are 0, the table is empty."""

    rows: int = 0
    days: int = 0
    runs: int = 0

    def __str__(self) -> str:
        if not self.days:
            return "empty table"
        return f"{_abbreviate(self.rows)} rows, {self.days:,} days, {self.runs:,} runs"

    @property
    def interval(self) -> Interval:
        """The published days."""
        return Interval(FIRST_DAY_MS, FIRST_DAY_MS + self.days * DAY_MS)

    @property
    def new_day(self) -> Interval:
        """The day after the published days. It has events."""
        return Interval(self.interval.end_ms, self.interval.end_ms + DAY_MS)


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a shape, with its home, its source and its definition."""

    folder: Path

    @property
    def home(self) -> Home:
        """The state folder."""
        return Home(self.folder / "home")

    @property
    def source(self) -> Path:
        """The folder of the source, with one file of events per day."""
        return self.folder / "source"

    @property
    def definitions(self) -> Path:
        """The folder of the definition."""
        return self.folder / "definitions"

    @property
    def definition(self) -> Path:
        """The file of the only definition."""
        return self.definitions / f"{NAME}.toml"


def key_of(number: int) -> str:
    """Return a key; keys sort by their numbers."""
    return f"key {number:06}"


def _abbreviate(count: int) -> str:
    return f"{count // 1_000_000} M" if count % 1_000_000 == 0 else f"{count:,}"
