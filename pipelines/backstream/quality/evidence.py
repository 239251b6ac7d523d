"""Facts about a run that are not in its counts: earlier runs, replaced rows, unreadable and repeated records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pyarrow as pa

_EXAMPLES = 3
_LONGEST = 60
"""Characters of a value that a sentence has room for."""
READ_OF_QUARANTINE = ["reason", "event_time", "arrival_time", "record", "file"]
"""Columns of the quarantine table that `unreadable_in` looks at."""


@dataclass(frozen=True, slots=True)
class UnreadableRecords:
    """Records in quarantine: how many for each reason, and an example each of the first reasons."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    examples: Sequence[str] = ()

    def __str__(self) -> str:
        """Return such as `null_event_time 3, unparsable_event_time 2; for example 'noon' in a.parquet`."""
        counted = ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.items())
        return f"{counted}; for example {', '.join(self.examples)}" if self.examples else counted


@dataclass(frozen=True, slots=True)
class RepeatedPositions:
    """Positions (source partition and sequence) of more than one record, and the first of them in words."""

    positions: int = 0
    examples: Sequence[str] = ()

    def __str__(self) -> str:
        """Return such as `2 positions came more than once (A 17 twice, A 18 twice)`."""
        one = "1 position" if self.positions == 1 else f"{self.positions:,} positions"
        return f"{one} came more than once ({', '.join(self.examples)})"


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """What an audit knows besides metrics and manifests.

    `past` are the records read per day of past runs; too few of them are no history. `replaced_rows` are those of
    the published table that a publication of the run would take away.
    """

    past: Sequence[float] = ()
    replaced_rows: int = 0
    unreadable: UnreadableRecords = UnreadableRecords()
    repeated: RepeatedPositions = RepeatedPositions()


def count_unreadable(quarantine: Iterable[pa.Table]) -> UnreadableRecords:
    """Return what the quarantined records of a run have in common.

    Args:
        quarantine: their tables, with the columns of `READ_OF_QUARANTINE`.
    """
    counts, examples = Counter[str](), dict[str, str]()
    for rows in quarantine:
        for each in rows["reason"].value_counts().to_pylist():
            counts[each["values"]] += each["counts"]
        reasons = rows["reason"].combine_chunks()
        for reason in [each for each in counts if each not in examples]:
            at = reasons.index(reason).as_py()
            if at >= 0:
                examples[reason] = _example(reason, rows.slice(at, 1).to_pylist()[0])
    reasons = dict(counts.most_common())
    return UnreadableRecords(reasons, [examples[reason] for reason in reasons][:_EXAMPLES])


def _example(reason: str, row: Mapping[str, str | None]) -> str:
    """The value that could not be read, and its file; the whole record where no value was there."""
    column = next((name for name in ("event_time", "arrival_time") if reason.endswith(name)), "record")
    value = row[column] or row["record"] or ""
    shown = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}.."
    return f"{shown!r} in {PurePosixPath(row['file'] or '').name}"
