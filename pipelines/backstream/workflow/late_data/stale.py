"""Find published days and windows that late data made stale: a new run of them would publish other rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow.compute as pc

from backstream.definition.changed_keys import ChangedKeys
from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.definition.prepared import reads_prepared_files
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, duration_text, epoch_ms, instant_text
from backstream.eventtime.intervals import Interval, backfill_range, require_whole_days
from backstream.eventtime.records import Fate
from backstream.eventtime.stale_windows import (
    ChangedRecords,
    StaleWindow,
    find_stale_windows,
    window_days,
)
from backstream.eventtime.windows import Session
from backstream.lake.published_windows import PublishedWindows, load_published_windows
from backstream.runs.home import Home, RunFolder
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import InputFile, Mode
from backstream.runs.table_schemas import PANES, pane_count_column
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers
from backstream.source.key_index import KeyIndex
from backstream.source.prepared import PreparedSource
from backstream.workflow.late_data.affected_rows import find_affected_rows
from backstream.workflow.late_data.changed_files import (
    ChangedFiles,
    CopiesReach,
    CurrentInputs,
    FileChange,
    InputComparison,
    InputDifference,
    list_changed_records,
    list_copies,
)
from backstream.workflow.late_data.planned_inputs import PlanInputs, PlannedInputs
from backstream.workflow.late_data.staleness import DefinitionChange, StaleDay, Staleness
from backstream.workflow.plan.allowed_ranges import read_interval


def find_stale_days(
    definition_path: Path, home: Home, since_ms: int | None = None, until_ms: int | None = None
) -> Staleness:
    """Return the published days that are stale because input files were added, changed or removed.

    The result also lists the days that were computed with another definition.

    Raises:
        SpecError: when only one end of the range is given, or the range is wrong.
        PlanError: when the source cannot be read, or only Spark can evaluate its event times.
    """
    interval = _parse_range(since_ms, until_ms)
    dataset = _Dataset.from_definition(definition_path, home)
    runs_by_day = dataset.published.runs_by_day()
    wanted = {day_ms: runs for day_ms, runs in runs_by_day.items() if interval is None or _is_in(day_ms, interval)}
    changes = [_find_run_changes(dataset, run_id, days) for run_id, days in _days_by_run(wanted).items()]
    dataset.plans.keep({run_id for runs in runs_by_day.values() for run_id in runs})
    dataset.remove_unused_contents()
    changed_files = {path: found for change in changes for path, found in change.files.items()}
    moved_files = {path: found for change in changes for path, found in change.moves.items()}
    definition_changes = _find_definition_changes(dataset, _days_by_run(wanted))
    return Staleness(
        dataset.name, len(wanted), _merge_days(changes), changed_files, moved_files, definition_changes
    )


def find_stale_since(definition_path: Path, home: Home, days_by_run: Mapping[str, set[int]]) -> set[int]:
    """Return the days that would have other rows now than their run computed, published or not.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its event times.
    """
    if not days_by_run:
        return set()
    dataset = _Dataset.from_definition(definition_path, home)
    changes = [_find_run_changes(dataset, run_id, days) for run_id, days in days_by_run.items()]
    dataset.plans.keep()
    return {day.day_ms for day in _merge_days(changes)}


def _parse_range(since_ms: int | None, until_ms: int | None) -> Interval | None:
    if since_ms is None and until_ms is None:
        return None
    if since_ms is None or until_ms is None:
        msg = f"a range needs both ends: --{'since' if since_ms is None else 'until'} is missing"
        raise SpecError(msg)
    for value_ms, name in ((since_ms, "since"), (until_ms, "until")):
        require_whole_days(value_ms, name)
    return backfill_range(since_ms, until_ms)


def _is_in(day_ms: int, interval: Interval) -> bool:
    return interval.start_ms <= day_ms < interval.end_ms


def _days_by_run(runs_by_day: Mapping[int, Iterable[str]]) -> dict[str, set[int]]:
    days: dict[str, set[int]] = defaultdict(set)
    for day_ms, runs in runs_by_day.items():
        for run_id in runs:
            days[run_id].add(day_ms)
    return days


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset's current input files, its published files, and the plans of its runs."""

    name: str
    definition: Definition
    home: Home
    inputs: CurrentInputs
    published: PublishedWindows
    plans: PlannedInputs
    comparison: InputComparison = field(default_factory=InputComparison)

    @classmethod
    def from_definition(cls, definition_path: Path, home: Home) -> Self:
        """Read the source's footers, the published files and the summaries of plans."""
        definition = resolve_paths(load_definition(definition_path), home)
        source = load_footers(list_source_files(definition.source, str(definition_path)), definition, home)
        plans = PlannedInputs.from_home(home, definition.name)
        return cls(
            name=definition.name,
            definition=definition,
            home=home,
            inputs=CurrentInputs.from_files(source.inputs, plans),
            published=load_published_windows(home, definition.name),
            plans=plans,
        )

    def key_index(self, planned: Definition) -> KeyIndex:
        """Return the key index of a planned definition; of the current one if it reads other kinds of files."""
        is_same_kind = reads_prepared_files(planned.source) == reads_prepared_files(self.definition.source)
        return KeyIndex.from_definition(planned if is_same_kind else self.definition, self.home)

    def remove_unused_contents(self) -> None:
        """Remove the contents of batches that were replaced, and that no plan read."""
        if reads_prepared_files(self.definition.source):
            for folder in self.definition.source.paths:
                PreparedSource.from_location(folder).remove_unused_contents(self.plans.has_read_folder)


class _StaleWindowOfDay(NamedTuple):
    day_ms: int
    window: StaleWindow


class _StaleReason(NamedTuple):
    """The reason why the whole day is stale."""

    day_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class _RunChanges:
    """The effects of changed input files on the days of one run.

    `mode` is None if the run's plan cannot be read. `files` are the changed files, and `moves` those that were
    only renamed or compressed.
    """

    days: set[int]
    mode: Mode | None = None
    windows: tuple[_StaleWindowOfDay, ...] = ()
    reasons: tuple[_StaleReason, ...] = ()
    files: Mapping[str, FileChange] = field(default_factory=dict)
    moves: Mapping[str, FileChange] = field(default_factory=dict)


def _merge_days(changes: Iterable[_RunChanges]) -> tuple[StaleDay, ...]:
    """Return the stale days in order; a day that several runs published has the findings of all of them."""
    modes: dict[int, Mode] = {}
    windows: dict[int, list[StaleWindow]] = defaultdict(list)
    reasons: dict[int, list[str]] = defaultdict(list)
    for change in changes:
        if change.mode:
            modes |= dict.fromkeys(change.days, change.mode)
        for day_ms, window in change.windows:
            windows[day_ms].append(window)
        for day_ms, reason in change.reasons:
            if reason not in reasons[day_ms]:
                reasons[day_ms].append(reason)
    return tuple(
        StaleDay(day_ms, modes.get(day_ms), tuple(windows.get(day_ms, ())), tuple(reasons.get(day_ms, ())))
        for day_ms in sorted({*windows, *reasons})
    )


def _find_run_changes(dataset: _Dataset, run_id: str, days: set[int]) -> _RunChanges:
    """Compare the input files of a run with the current ones; `days` are the days that the run published."""
    plan = dataset.plans.plan(run_id)
    if plan is None:
        reason = f"the input of run {run_id} is unknown: its plan cannot be read"
        return _RunChanges(days, reasons=_whole_days(days, reason))
    removed = sorted(dataset.plans.of_plan(plan, dataset.inputs.removed_since(plan)), key=lambda file: file.path)
    difference = InputDifference(dataset.inputs, dataset.inputs.added_since(plan), removed)
    definition = dataset.plans.definition(plan)
    emitted = tuple(_find_emitted_days(dataset, definition, plan.mode, days))
    if not difference or emitted:
        return _RunChanges(days, plan.mode, reasons=emitted)
    if path := _find_watermark_change(plan, definition, dataset.comparison, difference):
        reason = f"the watermarks would change: {path} arrived before the end of the replayed input"
        return _RunChanges(days, plan.mode, reasons=_whole_days(days, reason))
    others = difference.others() if definition.source.deduplicate_on else []
    copies = _find_copies_reach(definition, difference, others)
    reach = _reach(definition, days, copies)
    files = dataset.comparison.compare(difference, reach, definition.window.spec().zone)
    windows: tuple[_StaleWindowOfDay, ...] = ()
    reasons: tuple[_StaleReason, ...] = ()
    if files.unknown:
        reason = f"the input of run {run_id} is unknown: the contents of {files.unknown} were removed"
        reasons = _whole_days(days, reason)
    elif files.changes and definition.process:
        reason = f"the state of the process function would change: {min(files.changes)}"
        reasons = _whole_days(days, reason)
    elif files.changes:
        index = dataset.key_index(definition)
        records = list_changed_records(definition, files, index, reach)
        records += list_copies(index.definition, files, others, copies)
        windows = _find_windows(dataset, definition, days, records)
        reasons = (
            *_find_uncertain_days(definition, days, records),
            *_find_days_of_copies(dataset, run_id, days, files, copies),
        )
    return _RunChanges(days, plan.mode, windows, reasons, files.changes, files.moves)


def _find_emitted_days(
    dataset: _Dataset, planned: Definition, mode: Mode, days: set[int]
) -> Iterator[_StaleReason]:
    """Yield the days with windows that were open, and that a job of Structured Streaming has emitted since."""
    former, latest = planned.watermark.batches, dataset.definition.watermark.batches
    if (
        mode is Mode.RECOMPUTE
        or planned.backfill.publish != "first"
        or former == latest
        or not (former and latest)
    ):
        return
    from backstream.structured_streaming.batch_table import load_batches  # other datasets need no such import

    first_ms, last_ms = (load_batches(batches).emitted_until_ms for batches in (former, latest))
    ends_ms, window = Interval(first_ms + 1, max(last_ms, first_ms) + 1), planned.window.spec()
    if isinstance(window, Session):
        found = _find_days_of_open_sessions(dataset, days, ends_ms)
    else:
        found = {day for day in days if Interval(day + 1, day + DAY_MS + window.size_ms).overlaps(ends_ms)}
    yield from _whole_days(sorted(found), f"the job has emitted windows since, up to {instant_text(last_ms)}")


def _find_days_of_open_sessions(dataset: _Dataset, days: set[int], ends_ms: Interval) -> set[int]:
    """Return the days on which sessions begin that were not emitted, and that end in an interval."""
    from backstream.lake.reader import load_published_rows  # PyIceberg takes long to import

    panes = load_published_rows(dataset.home, dataset.name, PANES, Interval(min(days), max(days) + DAY_MS))
    first, live = (pc.equal(panes[pane_count_column(pane)], 0) for pane in ("first", "live"))
    rows = panes.filter(pc.and_(first, pc.invert(live))).select(["window_start", "window_end"]).to_pylist()
    # An end in the table has microseconds, so one in the first millisecond was open.
    starts_ms = {
        epoch_ms(row["window_start"])
        for row in rows
        if ends_ms.start_ms - 1 <= epoch_ms(row["window_end"]) < ends_ms.end_ms
    }
    return days.intersection(start_ms - start_ms % DAY_MS for start_ms in starts_ms)


def _find_copies_reach(
    definition: Definition, difference: InputDifference, others: Sequence[InputFile]
) -> CopiesReach:
    """Return how far from the records of changed files the fates of others may have changed."""
    if not definition.source.deduplicate_on:
        return CopiesReach()
    removed, added = difference.sides(None)
    return CopiesReach.of_changes(definition.source, [*removed, *added], others)


def _find_days_of_copies(
    dataset: _Dataset, run_id: str, days: set[int], files: ChangedFiles, copies: CopiesReach
) -> Iterator[_StaleReason]:
    """Yield the days of records that a removed record may have made duplicates: they may have no rows yet."""
    removed = [] if copies == CopiesReach() else list(files.removed_spans())
    if not removed or _is_without_duplicates(dataset.home.run(dataset.name, run_id)):
        return
    within = duration_text(dataset.definition.source.deduplicate_within)
    for path, first_ms, last_ms in removed:
        near = copies.around(first_ms, last_ms)
        reason = f"duplicates of removed records may count now, up to {within} from the records of {path}"
        found = (day_ms for day_ms in days if near.overlaps(Interval(day_ms, day_ms + DAY_MS)))
        yield from _whole_days(found, reason)


def _is_without_duplicates(run: RunFolder) -> bool:
    """Return whether a run is known to have found no duplicate."""
    manifests = [Manifest.read(path) for path in run.manifests.glob("*.json")]
    counts = sum_fates(manifests).values()
    return bool(manifests) and not any(fates.get(Fate.DUPLICATE) for fates in counts)


def _find_definition_changes(
    dataset: _Dataset, days_by_run: Mapping[str, set[int]]
) -> tuple[DefinitionChange, ...]:
    """Return the keys in which the definition differs from those of runs, each with the days of these runs."""
    current, changed = dataset.definition.model_dump(mode="json"), dict[str, ChangedKeys]()
    days_by_keys: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for run_id, days in days_by_run.items():
        if (plan := dataset.plans.plan(run_id)) is None:
            continue
        if plan.definition not in changed:
            old = dataset.plans.definition(plan).model_dump(mode="json")
            changed[plan.definition] = ChangedKeys.between(old, current)
        if keys := changed[plan.definition].of_mode(plan.mode):
            days_by_keys[keys] |= days
    by_first_day = sorted(days_by_keys.items(), key=lambda item: min(item[1]))
    return tuple(DefinitionChange(keys, tuple(sorted(days))) for keys, days in by_first_day)


def _whole_days(days: Iterable[int], reason: str) -> tuple[_StaleReason, ...]:
    return tuple(_StaleReason(day_ms, reason) for day_ms in days)


def _find_windows(
    dataset: _Dataset, definition: Definition, days: set[int], records: Sequence[ChangedRecords]
) -> tuple[_StaleWindowOfDay, ...]:
    """Return the windows of the days that the changed records affect."""
    spec = definition.window.spec()
    rows = find_affected_rows(dataset.published, dataset.definition.source.key, spec, records, days)
    return tuple(
        _StaleWindowOfDay(day_ms, window)
        for window in find_stale_windows(spec, records, rows)
        for day_ms in days.intersection(window_days(spec, window.window))
    )


def _find_uncertain_days(
    definition: Definition, days: set[int], records: Sequence[ChangedRecords]
) -> tuple[_StaleReason, ...]:
    """Return the days of late records that may have started session windows that are not published."""
    if not isinstance(definition.window.spec(), Session) or definition.backfill.publish == "final":
        return ()
    first_days = (record.first_ms - record.first_ms % DAY_MS for record in records)
    reason = "late events may have started sessions that are not published"
    return _whole_days((day_ms for day_ms in first_days if day_ms in days), reason)


def _find_watermark_change(
    plan: PlanInputs, definition: Definition, comparison: InputComparison, difference: InputDifference
) -> str | None:
    """Return the first file that changes the watermarks, and with them the fates of other records; None: no file.

    Final results include all events, so watermarks do not matter. A file that arrived after the end of the
    replayed input changes no watermark, and no file changes what a job of Structured Streaming wrote down.
    """
    if plan.mode is Mode.RECOMPUTE or definition.backfill.publish == "final" or definition.watermark.batches:
        return None
    changes = comparison.compare(difference, None)
    return changes.find_arrival_until(plan.clock_end_ms)


def _reach(definition: Definition, days: set[int], copies: CopiesReach) -> Interval | None:
    """Return the event times that rows of these days depend on; None for sessions, which have no bounds."""
    interval = Interval(min(days), max(days) + DAY_MS)
    if process := definition.process:
        reach_ms = process.state_reach
        if reach_ms is None:
            return None
        return copies.toward(Interval(interval.start_ms - reach_ms, interval.end_ms + reach_ms))
    if isinstance(definition.window.spec(), Session):
        return None
    return copies.toward(read_interval(interval, definition))
