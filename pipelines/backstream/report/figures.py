"""Compute the numbers of a run report: totals, record accounting, chunks, and checks by severity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from backstream.definition.model import Definition
from backstream.definition.result_sections import CumulateWindow, SessionWindow, SlidingWindow, Top
from backstream.eventtime.instants import duration_text
from backstream.eventtime.records import TIMING_BY_FATE, UNDECIDED, Fate
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.windows import Cumulate, Sliding
from backstream.formatting import count_of, count_text, duration_words, minute_text, share_text
from backstream.quality.window_rows import count_windows
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Publication
from backstream.runs.table_schemas import SKIPPED, WINDOWS, WITHHELD

FATES = tuple(fate for fate in Fate if fate is not Fate.HALO)
"""Fates of the records that a chunk owns. A record with the fate `halo` belongs to another chunk."""
FATE_WORDS = {
    Fate.ON_TIME: "on time",
    Fate.LATE: "late",
    Fate.DROPPED: "dropped",
    Fate.UNASSIGNED: "unassigned",
    Fate.FILTERED: "filtered",
    Fate.UNDECIDED_COUNTED: "undecided, counted",
    Fate.UNDECIDED_DROPPED: "undecided, dropped",
    Fate.DUPLICATE: "duplicate",
    Fate.QUARANTINED: "quarantined",
    Fate.HALO: "halo",
}
_SEVERITY_ORDER = (CheckOutcome.ERROR, CheckOutcome.FAIL, CheckOutcome.WARN, CheckOutcome.INFO, CheckOutcome.PASS)


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of the windows in the range, over all source partitions."""

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
    """Counts of one source partition by fate; `held` is the sum over its windows, None when not comparable."""

    name: str
    fates: tuple[int, ...]
    in_windows: int
    held: int | None

    @property
    def total(self) -> int:
        """Number of records with a fate."""
        return sum(self.fates)

    @property
    def is_agreed(self) -> bool:
        """Return whether the sum over the windows equals the sum of the fates."""
        return self.held is None or self.held == self.in_windows


@dataclass(frozen=True, slots=True)
class RecordAccounting:
    """Number of records read and their fates, by source partition and in total."""

    rows: tuple[ReconciledRow, ...]
    total: ReconciledRow
    read_by_chunks: int
    outside: int
    result_rows: int
    result_records: int
    """Sum of the record counts of the result rows; a record in three windows counts three times."""
    withheld_records: int
    """Sum of the record counts of the rows that `having` withholds."""
    is_repeated: bool
    """True when a record can be in several windows."""
    skipped_windows: int = 0
    """Number of keys and windows for which user code returned no row."""
    skipped_records: int = 0

    @property
    def read(self) -> int:
        """Number of records read by the chunks that own them."""
        return self.read_by_chunks - self.outside

    @property
    def unaccounted_records(self) -> int:
        """Number of records without a fate; negative when records have more than one."""
        return self.read - self.total.total


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """One chunk: plan, and manifest if it finished."""

    chunk_id: str
    since: str
    until: str
    files: int
    expected_events: int
    manifest: Manifest | None
    outside: int

    @property
    def seconds(self) -> float | None:
        """Sum of the durations of its stages."""
        return sum(self.manifest.timings_s.values()) if self.manifest else None

    @property
    def stages(self) -> str:
        """Stages with their durations as text."""
        timings = self.manifest.timings_s if self.manifest else {}
        return ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in timings.items())


_COUNTER = "numLateRecordsDropped of the job"


def compute_totals(frame: pd.DataFrame) -> Totals:
    """Return the sums of the audit frame; `expected_events` is None when no timetable defines it."""
    expected = frame[frame["is_expected"]]
    is_known = bool(frame["is_count_known"].any())
    return Totals(
        windows_expected=count_windows(expected),
        windows_present=count_windows(expected[expected["is_present"]]),
        expected_events=int(frame["expected_events"].sum()) if is_known else None,
        **{name: int(frame[name].sum()) for name in ("events", "on_time", "late", "dropped", "expired")},
    )


def account_records(
    manifests: Sequence[Manifest], frame: pd.DataFrame | None, definition: Definition
) -> RecordAccounting:
    """Return the sums over all chunks, and for tumbling windows the events in the windows to compare."""
    fates = sum_fates(list(manifests))
    held = _sum_window_events(frame, definition)
    rows = tuple(_accounting_row(name, fates[name], held) for name in sorted(fates))
    total = ReconciledRow(
        "all",
        tuple(sum(row.fates[index] for row in rows) for index in range(len(FATES))),
        sum(row.in_windows for row in rows),
        sum(held.values()) if held is not None else None,
    )
    outside = sum(_count_outside(manifest) for manifest in manifests)
    files = [file for manifest in manifests for file in manifest.files.get(WINDOWS, ())]
    skipped = [file for manifest in manifests for file in manifest.files.get(SKIPPED, ())]
    is_repeated = isinstance(definition.window.spec(), Sliding | Cumulate)
    return RecordAccounting(
        rows=rows,
        total=total,
        read_by_chunks=sum(manifest.events_read for manifest in manifests),
        outside=outside,
        result_rows=sum(file.rows for file in files),
        result_records=sum(file.records for file in files),
        withheld_records=sum(file.records for manifest in manifests for file in manifest.files.get(WITHHELD, ())),
        is_repeated=is_repeated,
        skipped_windows=sum(file.rows for file in skipped),
        skipped_records=sum(file.records for file in skipped),
    )


def _accounting_row(name: str, counts: dict[str, int], held: dict[str, int] | None) -> ReconciledRow:
    in_windows = sum(counts.get(fate, 0) for fate in TIMING_BY_FATE)
    fates = tuple(counts.get(fate, 0) for fate in FATES)
    return ReconciledRow(name, fates, in_windows, None if held is None else held.get(name, 0))


def _sum_window_events(frame: pd.DataFrame | None, definition: Definition) -> dict[str, int] | None:
    if frame is None or definition.metric_windows.has_overlaps:
        return None
    sums = frame.groupby("source_partition")["events"].sum()
    return {str(name): int(count) for name, count in sums.items()}


def _count_outside(manifest: Manifest) -> int:
    return sum(counts.get(Fate.HALO, 0) for counts in manifest.fates.values())


def list_chunk_rows(plan: Plan, manifests: Sequence[Manifest]) -> tuple[ChunkRow, ...]:
    """Return the chunks with their manifests, in order of the plan."""
    finished = {manifest.chunk_id: manifest for manifest in manifests}
    return tuple(
        ChunkRow(
            chunk_id=chunk.chunk_id,
            since=minute_text(chunk.start_ms),
            until=minute_text(chunk.end_ms),
            files=len(chunk.files),
            expected_events=chunk.expected_events,
            manifest=finished.get(chunk.chunk_id),
            outside=_count_outside(finished[chunk.chunk_id]) if chunk.chunk_id in finished else 0,
        )
        for chunk in plan.chunks
    )


def sort_by_severity(audit: Audit) -> tuple[Check, ...]:
    """Return the checks by severity of their outcome, then in the order of their suite."""
    return tuple(sorted(audit.checks, key=lambda check: _SEVERITY_ORDER.index(check.outcome)))


def fate_columns(total: ReconciledRow) -> tuple[tuple[int, str], ...]:
    """Return place and name of each fate in the table; records are undecided only in replays of a job."""
    return tuple(
        (place, FATE_WORDS[fate])
        for place, fate in enumerate(FATES)
        if total.fates[place] or fate not in UNDECIDED
    )


def fate_shares(total: ReconciledRow) -> tuple[tuple[str, int, str], ...]:
    """Return CSS class, count, and name of each fate that occurs."""
    return tuple(
        (str(fate), count, FATE_WORDS[fate]) for fate, count in zip(FATES, total.fates, strict=True) if count
    )


def input_figures(plan: Plan) -> tuple[int, int, int]:
    """Return the number of files, rows, and bytes that the plan reads."""
    return (
        len(plan.inputs),
        sum(file.rows for file in plan.inputs),
        sum(file.size_bytes for file in plan.inputs),
    )


def delivery_texts(frame: pd.DataFrame) -> dict[str, str]:
    """Return the delivery of each source partition: `8,597 of 9,104 events (94.4 %), 10 windows empty`."""
    return {str(name): _delivery_text(compute_totals(rows)) for name, rows in frame.groupby("source_partition")}


def _delivery_text(totals: Totals) -> str:
    events = count_of(totals.events, "event")
    if not totals.windows_expected:
        return f"{events}, none expected"
    if totals.expected_events is not None:
        share = share_text(totals.events, totals.expected_events)
        events = f"{count_text(totals.events)} of {count_of(totals.expected_events, 'event')} ({share})"
    empty = totals.windows_expected - totals.windows_present
    return f"{events}, {count_of(empty, 'window')} empty" if empty else events


def snapshot_texts(publication: Publication | None) -> tuple[str, ...]:
    """Return each table with the snapshot that the publication committed."""
    if publication is None:
        return ()
    name = publication.dataset
    return tuple(
        f"{name}__{suffix} {snapshot}" if suffix else f"{name} {snapshot}"
        for suffix, snapshot in sorted(publication.snapshots.items())
    )


def aggregate_texts(definition: Definition) -> tuple[str, ...]:
    """Return the columns of the result as texts: `departures = count(*)`, and the conditions of published rows.

    For user code and a join, these are the columns and the name.
    """
    if definition.code_columns is not None:
        code = definition.join or definition.user_code[-1]
        return tuple(f"{name} = {kind} of {code}" for name, kind in definition.code_columns.items())
    columns = {**definition.aggregates, **definition.derive_after}
    rows = [f"having {definition.having.condition}"] if definition.having else []
    if definition.top:
        rows.append(_top_text(definition.top))
    return (*(f"{name} = {call}" for name, call in columns.items()), *rows)


def _top_text(top: Top) -> str:
    """Return which rows of a window are published: `top 2 by revenue desc, per region`."""
    per = f", per {', '.join(top.partition_by)}" if top.partition_by else ""
    ties = ", with ties" if top.ties == "keep" else ""
    return f"top {top.n:,} by {top.by}{per}{ties}" + (f" (rank in {top.rank})" if top.rank else "")


def window_text(definition: Definition) -> str:
    """Return the kind and the durations of the windows: `tumbling, 1 h`."""
    window = definition.window
    if isinstance(window, SessionWindow):
        return f"session, gap {duration_words(window.gap)}"
    parts = [window.kind, duration_words(window.size)]
    if isinstance(window, SlidingWindow):
        parts.append(f"slide {duration_words(window.slide)}")
    if isinstance(window, CumulateWindow):
        parts.append(f"step {duration_words(window.step)}")
    if window.offset:
        parts.append(f"offset {duration_text(window.offset)}")
    return ", ".join(parts)


def counts_late_rows(definition: Definition) -> bool:
    """Return whether the metric of late records may count something else: Flink SQL cuts windows into slices."""
    kinds = {strategy.kind for strategy in definition.emission.strategies}
    return StrategyKind.FLINK_SQL in kinds and not isinstance(definition.window, SessionWindow)


def late_counter_text(
    definition: Definition, accounting: RecordAccounting, totals: Totals | None, late_slices: int | None
) -> str:
    """Return the metric `numLateRecordsDropped` of a Flink SQL job if it may not count records; else no text.

    Args:
        definition: the definition.
        accounting: the fates of the records.
        totals: the sums over all windows.
        late_slices: the number of keys and slices with dropped records; None if it is not known.
    """
    dropped, window = accounting.total.fates[FATES.index(Fate.DROPPED)], definition.window.spec()
    if not counts_late_rows(definition):
        return ""
    if definition.top and accounting.result_records == accounting.result_rows:
        # The rows that are ranked are records, which Flink drops from each window by itself.
        late_rows = totals.dropped + totals.expired if totals and isinstance(window, Sliding) else dropped
        return (
            f"{_COUNTER}: {count_text(late_rows)}, one for each window of a record" if late_rows > dropped else ""
        )
    if not dropped or late_slices == dropped:
        return ""
    least = "at most " if late_slices is None else f"{count_text(late_slices)} to "
    return (
        f"{_COUNTER}: {least}{count_text(dropped)}, because Flink SQL counts rows that it has aggregated"
        " by key and slice; with table.optimizer.agg-phase-strategy = ONE_PHASE, it counts records"
    )


def accounting_text(accounting: RecordAccounting) -> str:
    """Return the sum of the fates: `23,666 records read = 22,295 on time + 968 late + 403 dropped`."""
    parts = [f"{count_text(count)} {name}" for _, count, name in fate_shares(accounting.total)]
    return f"{count_text(accounting.read)} records read = {' + '.join(parts) or '0'}"
