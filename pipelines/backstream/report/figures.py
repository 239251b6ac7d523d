"""The numbers of a run report, computed once, so that the page only has to show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from backstream.definition.model import CumulateWindow, Definition, SessionWindow, SlidingWindow
from backstream.eventtime.instants import duration_text
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Cumulate, Sliding, Tumbling
from backstream.report.formatting import count_of, count_text, duration_words, minute_text, share_text
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Publication
from backstream.runs.table_schemas import WINDOWS

FATES = tuple(fate for fate in Fate if fate is not Fate.HALO)
"""Fates that count towards what was read: `halo` belongs to the chunk that owns the record."""
FATE_WORDS = {
    Fate.ON_TIME: "on time",
    Fate.LATE: "late",
    Fate.DROPPED: "dropped",
    Fate.UNASSIGNED: "unassigned",
    Fate.DUPLICATE: "duplicate",
    Fate.QUARANTINED: "quarantined",
    Fate.HALO: "halo",
}
_GRAVITY = (CheckOutcome.ERROR, CheckOutcome.FAIL, CheckOutcome.WARN, CheckOutcome.INFO, CheckOutcome.PASS)


@dataclass(frozen=True, slots=True)
class Totals:
    """What the windows of the range hold, over all source partitions."""

    windows_expected: int
    windows_present: int
    expected_events: int | None
    events: int
    on_time: int
    late: int
    dropped: int
    expired: int


@dataclass(frozen=True, slots=True)
class ReconciledRow:
    """Fates of one source partition: `held` are the records its windows hold, None where not comparable."""

    name: str
    fates: tuple[int, ...]
    in_windows: int
    held: int | None

    @property
    def total(self) -> int:
        """Records with a fate."""
        return sum(self.fates)

    @property
    def is_agreed(self) -> bool:
        """Whether the windows hold exactly the records that the fates say."""
        return self.held is None or self.held == self.in_windows


@dataclass(frozen=True, slots=True)
class RecordAccounting:
    """`read = sum of fates`, per source partition and over all."""

    rows: tuple[ReconciledRow, ...]
    total: ReconciledRow
    read_by_chunks: int
    outside: int
    result_rows: int
    result_records: int
    """Those that the result rows say they are made of; one in three windows counts three times."""
    is_repeated: bool
    """Whether a record may be in several windows."""

    @property
    def read(self) -> int:
        """Records read by the chunk that owns them."""
        return self.read_by_chunks - self.outside

    @property
    def unaccounted(self) -> int:
        """Records without a fate; negative: with more than one."""
        return self.read - self.total.total


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """One chunk: planned and, if it finished, what it did."""

    chunk_id: str
    since: str
    until: str
    files: int
    expected_events: int
    manifest: Manifest | None
    outside: int

    @property
    def seconds(self) -> float | None:
        """Sum of its stages."""
        return sum(self.manifest.timings_s.values()) if self.manifest else None

    @property
    def stages(self) -> str:
        """Each stage with its seconds."""
        timings = self.manifest.timings_s if self.manifest else {}
        return ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in timings.items())


def compute_totals(frame: pd.DataFrame) -> Totals:
    """Sums of the audit frame; `expected_events` is None where no timetable says."""
    expected = frame[frame["is_expected"]]
    is_known = bool(frame["is_count_known"].any())
    return Totals(
        windows_expected=len(expected),
        windows_present=int(expected["is_present"].sum()),
        expected_events=int(frame["expected_events"].sum()) if is_known else None,
        **{name: int(frame[name].sum()) for name in ("events", "on_time", "late", "dropped", "expired")},
    )


def account_records(
    manifests: Sequence[Manifest], frame: pd.DataFrame | None, definition: Definition
) -> RecordAccounting:
    """The sums of all chunks, beside what the windows hold where a record counts once (tumbling windows)."""
    fates = sum_fates(list(manifests))
    held = _held(frame, definition)
    rows = tuple(_row(name, fates[name], held) for name in sorted(fates))
    total = ReconciledRow(
        "all",
        tuple(sum(row.fates[at] for row in rows) for at in range(len(FATES))),
        sum(row.in_windows for row in rows),
        sum(held.values()) if held is not None else None,
    )
    outside = sum(_outside(manifest) for manifest in manifests)
    files = [file for each in manifests for file in each.files.get(WINDOWS, ())]
    is_repeated = isinstance(definition.window.spec(), Sliding | Cumulate)
    behind = sum(file.rows for file in files), sum(file.records for file in files)
    return RecordAccounting(
        rows, total, sum(each.events_read for each in manifests), outside, *behind, is_repeated
    )


def _row(name: str, counts: dict[str, int], held: dict[str, int] | None) -> ReconciledRow:
    in_windows = sum(counts.get(fate, 0) for fate in (Fate.ON_TIME, Fate.LATE, Fate.DROPPED))
    fates = tuple(counts.get(fate, 0) for fate in FATES)
    return ReconciledRow(name, fates, in_windows, None if held is None else held.get(name, 0))


def _held(frame: pd.DataFrame | None, definition: Definition) -> dict[str, int] | None:
    if frame is None or not isinstance(definition.metric_windows, Tumbling):
        return None
    sums = frame.groupby("source_partition")["events"].sum()
    return {str(name): int(count) for name, count in sums.items()}


def _outside(manifest: Manifest) -> int:
    return sum(counts.get(Fate.HALO, 0) for counts in manifest.fates.values())


def list_chunk_rows(plan: Plan, manifests: Sequence[Manifest]) -> tuple[ChunkRow, ...]:
    """Plan against actual, in order of the plan."""
    finished = {manifest.chunk_id: manifest for manifest in manifests}
    return tuple(
        ChunkRow(
            chunk_id=chunk.chunk_id,
            since=minute_text(chunk.start_ms),
            until=minute_text(chunk.end_ms),
            files=len(chunk.files),
            expected_events=chunk.expected_events,
            manifest=finished.get(chunk.chunk_id),
            outside=_outside(finished[chunk.chunk_id]) if chunk.chunk_id in finished else 0,
        )
        for chunk in plan.chunks
    )


def sort_by_severity(audit: Audit) -> tuple[Check, ...]:
    """Checks, the gravest first; in the order of their suite within one gravity."""
    return tuple(sorted(audit.checks, key=lambda check: _GRAVITY.index(check.outcome)))


def fate_shares(total: ReconciledRow) -> tuple[tuple[str, int, str], ...]:
    """CSS class, count and words of each fate that occurs."""
    return tuple(
        (str(fate), count, FATE_WORDS[fate]) for fate, count in zip(FATES, total.fates, strict=True) if count
    )


def input_figures(plan: Plan) -> tuple[int, int, int]:
    """Files, rows and bytes that the plan reads."""
    return (
        len(plan.inputs),
        sum(file.rows for file in plan.inputs),
        sum(file.size_bytes for file in plan.inputs),
    )


def delivery_texts(frame: pd.DataFrame) -> dict[str, str]:
    """Per source partition what came: `8,597 of 9,104 events (94.4 %), 10 windows empty`."""
    return {str(name): _delivered(compute_totals(rows)) for name, rows in frame.groupby("source_partition")}


def _delivered(found: Totals) -> str:
    events = count_of(found.events, "event")
    if not found.windows_expected:
        return f"{events}, none expected"
    if found.expected_events is not None:
        came = share_text(found.events, found.expected_events)
        events = f"{count_text(found.events)} of {count_of(found.expected_events, 'event')} ({came})"
    empty = found.windows_expected - found.windows_present
    return f"{events}, {count_of(empty, 'window')} empty" if empty else events


def snapshot_texts(publication: Publication | None) -> tuple[str, ...]:
    """Each table with the snapshot that now holds the range."""
    if publication is None:
        return ()
    name = publication.dataset
    return tuple(
        f"{name}__{suffix} {snapshot}" if suffix else f"{name} {snapshot}"
        for suffix, snapshot in sorted(publication.snapshots.items())
    )


def aggregate_texts(definition: Definition) -> tuple[str, ...]:
    """`departures = count(*)`, .."""
    return tuple(f"{name} = {call}" for name, call in definition.aggregates.items())


def window_text(definition: Definition) -> str:
    """`tumbling, 1 h`."""
    window = definition.window
    if isinstance(window, SessionWindow):
        return f"session, closed by a gap of more than {duration_words(window.gap)}"
    parts = [window.kind, duration_words(window.size)]
    if isinstance(window, SlidingWindow):
        parts.append(f"a new one every {duration_words(window.slide)}")
    if isinstance(window, CumulateWindow):
        parts.append(f"in steps of {duration_words(window.step)}")
    if window.offset:
        parts.append(f"offset {duration_text(window.offset)}")
    return ", ".join(parts)


def accounting_text(found: RecordAccounting) -> str:
    """`23,666 records read = 22,295 on time + 968 late + ..`."""
    parts = [f"{count_text(count)} {words}" for _, count, words in fate_shares(found.total)]
    return f"{count_text(found.read)} records read = {' + '.join(parts) or '0'}"
