"""Collect facts about a run that its counts lack: earlier runs, replaced rows, unreadable and repeated records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

MAX_EXAMPLES = 10
"""The maximum number of records that are named."""
_MAX_IN_SENTENCE = 3
_MAX_LENGTH = 60
"""The maximum number of characters of a value in a sentence."""
READ_OF_QUARANTINE = ["reason", "event_time", "arrival_time", "record", "file", "line"]
"""The columns of the quarantine table that `count_unreadable` reads."""


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A quarantined record: the reason, the unreadable value (else the record), its file, and its line."""

    reason: str
    value: str
    file: str
    line: int | None = None

    def __str__(self) -> str:
        """Return, e.g., `'noon' in a.parquet`, or `'{' in line 7 of a.json`."""
        place = self.file if self.line is None else f"line {self.line:,} of {self.file}"
        return f"{self.value!r} in {place}"


@dataclass(frozen=True, slots=True)
class UnreadableRecords:
    """The quarantined records: their number by reason, and some of them, the first of each reason first."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    examples: Sequence[UnreadableRecord] = ()

    def __str__(self) -> str:
        """Return, e.g., `null_event_time 3, unparsable_event_time 2; for example 'noon' in a.parquet`."""
        counted = ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.items())
        first = {example.reason: example for example in reversed(self.examples)}
        shown = [str(first[reason]) for reason in self.reasons if reason in first][:_MAX_IN_SENTENCE]
        return f"{counted}; for example {', '.join(shown)}" if shown else counted


@dataclass(frozen=True, slots=True)
class RepeatedPosition:
    """A source partition and sequence that more than one record has."""

    source_partition: str
    sequence: int
    records: int

    def __str__(self) -> str:
        """Return, e.g., `A 17 2 times`."""
        return f"{self.source_partition} {self.sequence} {self.records} times"


@dataclass(frozen=True, slots=True)
class RepeatedPositions:
    """The number of positions with several records, and the first of them."""

    positions: int = 0
    examples: Sequence[RepeatedPosition] = ()

    def __str__(self) -> str:
        """Return, e.g., `2 positions occur more than once (A 17 2 times, A 18 2 times)`."""
        one = "1 position" if self.positions == 1 else f"{self.positions:,} positions"
        verb = "occurs" if self.positions == 1 else "occur"
        shown = ", ".join(map(str, self.examples[:_MAX_IN_SENTENCE]))
        return f"{one} {verb} more than once ({shown})"


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """The facts of an audit besides metrics and manifests.

    `past` are the records per day that past runs read; few of them are ignored. `past_windows` are the windows of
    past runs with `bands.READ_OF_WINDOWS`, None without any. `replaced_by_day` is the number of
    published rows that the run would replace, by UTC day in epoch milliseconds.
    """

    past: Sequence[float] = ()
    past_windows: pd.DataFrame | None = None
    replaced_by_day: Mapping[int, int] = field(default_factory=dict)
    unreadable: UnreadableRecords = UnreadableRecords()
    repeated: RepeatedPositions = RepeatedPositions()

    @property
    def replaced_rows(self) -> int:
        """Return the number of published rows that the run would replace."""
        return sum(self.replaced_by_day.values())


def count_unreadable(quarantine: Iterable[pa.Table]) -> UnreadableRecords:
    """Count the quarantined records of a run by reason, with examples.

    Args:
        quarantine: their tables, with the columns of `READ_OF_QUARANTINE`.
    """
    counts, examples = Counter[str](), dict[str, list[UnreadableRecord]]()
    for rows in quarantine:
        for entry in rows["reason"].value_counts().to_pylist():
            counts[entry["values"]] += entry["counts"]
        for reason in counts:
            named = examples.setdefault(reason, [])
            if len(named) < MAX_EXAMPLES:
                of_reason = rows.filter(pc.equal(rows["reason"], reason)).slice(0, MAX_EXAMPLES - len(named))
                named += [_example(reason, row) for row in of_reason.to_pylist()]
    by_reason = [examples[reason] for reason, _ in counts.most_common()]
    ordered = [named[:1] for named in by_reason] + [named[1:] for named in by_reason]
    return UnreadableRecords(dict(counts.most_common()), list(chain.from_iterable(ordered))[:MAX_EXAMPLES])


def _example(reason: str, row: Mapping[str, Any]) -> UnreadableRecord:
    """Return the unreadable value and its file; the whole record if the value is missing."""
    column = next((name for name in ("event_time", "arrival_time") if reason.endswith(name)), "record")
    value = row[column] or row["record"] or ""
    shown = value if len(value) <= _MAX_LENGTH else f"{value[:_MAX_LENGTH]}.."
    return UnreadableRecord(reason, shown, PurePosixPath(row["file"] or "").name, row["line"])
