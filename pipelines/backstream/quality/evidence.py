"""Collect facts about a run that its counts lack: earlier runs, replaced rows, unreadable and repeated records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pyarrow as pa

_MAX_EXAMPLES = 3
_MAX_LENGTH = 60
"""The maximum number of characters of a value in a sentence."""
READ_OF_QUARANTINE = ["reason", "event_time", "arrival_time", "record", "file"]
"""The columns of the quarantine table that `count_unreadable` reads."""


@dataclass(frozen=True, slots=True)
class UnreadableRecords:
    """The quarantined records: their number by reason, and one example for each of the first reasons."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    examples: Sequence[str] = ()

    def __str__(self) -> str:
        """Return, e.g., `null_event_time 3, unparsable_event_time 2; for example 'noon' in a.parquet`."""
        counted = ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.items())
        return f"{counted}; for example {', '.join(self.examples)}" if self.examples else counted


@dataclass(frozen=True, slots=True)
class RepeatedPositions:
    """Positions (source partition and sequence) with several records, and the first of them as text."""

    positions: int = 0
    examples: Sequence[str] = ()

    def __str__(self) -> str:
        """Return, e.g., `2 positions occur more than once (A 17 twice, A 18 twice)`."""
        one = "1 position" if self.positions == 1 else f"{self.positions:,} positions"
        verb = "occurs" if self.positions == 1 else "occur"
        return f"{one} {verb} more than once ({', '.join(self.examples)})"


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """The facts of an audit besides metrics and manifests.

    `past` are the records per day that past runs read; few of them are ignored. `replaced_rows` is the number of
    published rows that the run would replace.
    """

    past: Sequence[float] = ()
    replaced_rows: int = 0
    unreadable: UnreadableRecords = UnreadableRecords()
    repeated: RepeatedPositions = RepeatedPositions()


def count_unreadable(quarantine: Iterable[pa.Table]) -> UnreadableRecords:
    """Count the quarantined records of a run by reason, with examples.

    Args:
        quarantine: their tables, with the columns of `READ_OF_QUARANTINE`.
    """
    counts, examples = Counter[str](), dict[str, str]()
    for rows in quarantine:
        for entry in rows["reason"].value_counts().to_pylist():
            counts[entry["values"]] += entry["counts"]
        reasons = rows["reason"].combine_chunks()
        for reason in [name for name in counts if name not in examples]:
            position = reasons.index(reason).as_py()
            if position >= 0:
                examples[reason] = _example(reason, rows.slice(position, 1).to_pylist()[0])
    reasons = dict(counts.most_common())
    return UnreadableRecords(reasons, [examples[reason] for reason in reasons][:_MAX_EXAMPLES])


def _example(reason: str, row: Mapping[str, str | None]) -> str:
    """Return the unreadable value and its file; the whole record if the value is missing."""
    column = next((name for name in ("event_time", "arrival_time") if reason.endswith(name)), "record")
    value = row[column] or row["record"] or ""
    shown = value if len(value) <= _MAX_LENGTH else f"{value[:_MAX_LENGTH]}.."
    return f"{shown!r} in {PurePosixPath(row['file'] or '').name}"
