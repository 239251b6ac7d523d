"""What late data did to what is published: which days and windows would be others if they were run again."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, MAX_MS, MIN_MS, instant_text
from backstream.eventtime.intervals import Interval, backfill_range, require_whole_days
from backstream.eventtime.stale_windows import (
    ChangedRecords,
    ChangeKind,
    StaleWindow,
    count_by_file,
    find_stale_windows,
    window_days,
)
from backstream.eventtime.windows import Session
from backstream.lake.published_windows import PublishedWindows, load_published_windows
from backstream.runs.home import Home
from backstream.runs.plan import InputFile, Mode
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers
from backstream.source.key_index import KeyIndex
from backstream.source.reader import UnreadableError
from backstream.source.time_columns import Longs
from backstream.workflow.affected_rows import Mask, find_affected_rows
from backstream.workflow.allowed_ranges import read_interval
from backstream.workflow.planned_inputs import PlanInputs, PlannedInputs, to_bits


@dataclass(frozen=True, slots=True)
class StaleDay:
    """One published UTC day that would have other rows now.

    `windows` are those known to be touched; `reasons` say why the whole day is stale where no window can be told.
    """

    day_ms: int
    mode: Mode | None
    windows: tuple[StaleWindow, ...]
    reasons: tuple[str, ...]

    @property
    def events(self) -> dict[str, int | None]:
        """File to the number of its records in the day's windows; None: nobody counted."""
        return count_by_file({touch for window in self.windows for touch in window.touches})


@dataclass(frozen=True, slots=True)
class Staleness:
    """The stale days of a dataset among `published_days`, in their order, and what became of each input file."""

    dataset: str
    published_days: int
    days: tuple[StaleDay, ...]
    changes: Mapping[str, ChangeKind]

    def ranges(self) -> list[tuple[Interval, Mode | None]]:
        """The stale days as ranges to be run: days that follow one another, published in one mode, are one."""
        found: list[tuple[Interval, Mode | None]] = []
        for day in self.days:
            if found and found[-1][0].end_ms == day.day_ms and found[-1][1] == day.mode:
                found[-1] = Interval(found[-1][0].start_ms, day.day_ms + DAY_MS), day.mode
            else:
                found.append((Interval(day.day_ms, day.day_ms + DAY_MS), day.mode))
        return found

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "dataset": self.dataset,
            "published_days": self.published_days,
            "stale_days": [_day_json(day, self.changes) for day in self.days],
        }


def find_stale_days(
    definition_path: Path, home: Home, since_ms: int | None = None, until_ms: int | None = None
) -> Staleness:
    """The published days that input files have changed since, by files that came, changed or went.

    Raises:
        SpecError: when only one end of the range is given, or the range is wrong.
        PlanError: when the source cannot be read, or only Spark can evaluate its event times.
    """
    finding = _Finding.from_definition(definition_path, home)
    interval = _interval(since_ms, until_ms)
    days = finding.published.runs_by_day()
    wanted = {day_ms: runs for day_ms, runs in days.items() if interval is None or _is_in(day_ms, interval)}
    for run_id, of_run in _days_by_run(wanted).items():
        finding.look_at(run_id, of_run)
    finding.plans.keep({run_id for runs in days.values() for run_id in runs})
    return Staleness(finding.dataset, len(wanted), finding.days(), finding.changes)


def find_stale_since(definition_path: Path, home: Home, days_by_run: Mapping[str, set[int]]) -> set[int]:
    """Those of some days that would have other rows now than the run has made, whether it published them or not.

    Raises:
        PlanError: when the source cannot be read, or only Spark can evaluate its event times.
    """
    if not days_by_run:
        return set()
    finding = _Finding.from_definition(definition_path, home)
    for run_id, days in days_by_run.items():
        finding.look_at(run_id, days)
    finding.plans.keep()
    return {day.day_ms for day in finding.days()}


def _interval(since_ms: int | None, until_ms: int | None) -> Interval | None:
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


def _days_by_run(days: Mapping[int, Iterable[str]]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for day_ms, runs in days.items():
        for run_id in runs:
            found[run_id].add(day_ms)
    return found


@dataclass(slots=True)
class _Finding:
    """What is found, run by run."""

    home: Home
    dataset: str
    keys: Sequence[str]
    inputs: _Inputs
    published: PublishedWindows
    plans: PlannedInputs
    changes: dict[str, ChangeKind] = field(default_factory=dict)
    _windows: dict[int, list[StaleWindow]] = field(default_factory=lambda: defaultdict(list))
    _reasons: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    _modes: dict[int, Mode] = field(default_factory=dict)

    @classmethod
    def from_definition(cls, definition_path: Path, home: Home) -> Self:
        """Nothing yet, over the input files and the published files that there are now."""
        definition = resolve_paths(load_definition(definition_path), home)
        source = load_footers(list_source_files(definition.source, str(definition_path)), definition, home)
        plans = PlannedInputs.from_home(home, definition.name)
        files = load_published_windows(home, definition.name)
        return cls(
            home, definition.name, definition.source.key, _Inputs.from_files(source.inputs, plans), files, plans
        )

    def look_at(self, run_id: str, days: set[int]) -> None:
        """Compare what a run read with what there is now; `days` are those that it published."""
        plan = self.plans.plan(run_id)
        if plan is None:
            self._whole(days, f"nothing tells what run {run_id} had read: its plan cannot be read")
            return
        self._modes |= dict.fromkeys(days, plan.mode)
        came = self.inputs.came_since(plan)
        went = sorted(self.plans.of_plan(plan, self.inputs.gone_since(plan)), key=lambda file: file.path)
        if not came.any() and not went:
            return
        definition = self.plans.definition(plan)
        if file := _unsettles(plan, definition, self.inputs, came, went):
            self._whole(days, f"the watermarks would be others: {file} arrived among what was replayed")
            return
        compared = _Compared.from_inputs(self.inputs, came, went, _reach(definition, days))
        self.changes |= compared.changes
        if compared.came or compared.went:
            index = KeyIndex.from_definition(definition, self.home)
            self._note(definition, days, _touches(definition, compared, index, _reach(definition, days)))

    def _note(self, definition: Definition, days: set[int], touches: Sequence[ChangedRecords]) -> None:
        spec = definition.window.spec()
        rows = find_affected_rows(self.published, self.keys, spec, touches, days)
        for window in find_stale_windows(spec, touches, rows):
            for day_ms in days.intersection(window_days(spec, window.window)):
                self._windows[day_ms].append(window)
        is_unsure = isinstance(spec, Session) and definition.backfill.publish != "final"
        for touch in touches if is_unsure else ():
            reason = "late events may have begun sessions of their own"
            self._whole(days & {touch.first_ms - touch.first_ms % DAY_MS}, reason)

    def _whole(self, days: Iterable[int], reason: str) -> None:
        for day_ms in days:
            if reason not in self._reasons[day_ms]:
                self._reasons[day_ms].append(reason)

    def days(self) -> tuple[StaleDay, ...]:
        """The stale days in their order."""
        named = {day for found in (self._windows, self._reasons) for day, what in found.items() if what}
        return tuple(
            StaleDay(
                day, self._modes.get(day), tuple(self._windows.get(day, ())), tuple(self._reasons.get(day, ()))
            )
            for day in sorted(named)
        )


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The input files that there are now, as columns; an unknown bound is one that keeps nothing out."""

    files: Sequence[InputFile]
    bits: int
    numbers: Longs
    has_rows: Mask
    first_event_ms: Longs
    last_event_ms: Longs
    first_arrival_ms: Longs

    @classmethod
    def from_files(cls, files: Sequence[InputFile], plans: PlannedInputs) -> Self:
        numbers = plans.numbers(files)
        is_bounded = [file.min_event_ms is not None and file.max_event_ms is not None for file in files]
        bounds = (
            [file.min_event_ms if is_told else MIN_MS for file, is_told in zip(files, is_bounded, strict=True)],
            [file.max_event_ms if is_told else MAX_MS for file, is_told in zip(files, is_bounded, strict=True)],
            [MIN_MS if file.min_arrival_ms is None else file.min_arrival_ms for file in files],
        )
        columns = (np.array(values, np.int64) for values in (numbers, [file.rows for file in files], *bounds))
        number, rows, first_ms, last_ms, arrival_ms = columns
        return cls(files, to_bits(numbers), number, rows > 0, first_ms, last_ms, arrival_ms)

    def came_since(self, plan: PlanInputs) -> Mask:
        """Which of the files a plan did not know. One that it left out as damaged is as damaged as it was."""
        known = plan.read_files | plan.skipped
        size = int(max(self.numbers.max(initial=0), known.bit_length())) // 8 + 1
        bits = np.frombuffer(known.to_bytes(size, "little"), np.uint8)
        found: Mask = np.unpackbits(bits, bitorder="little")[self.numbers] == 0
        return found

    def gone_since(self, plan: PlanInputs) -> int:
        """The files that a plan knew and that are not there now, as bits."""
        return plan.read_files & ~(self.bits & ~plan.skipped)

    def may_hold(self, reach: Interval | None) -> Mask:
        """In which of them events of a reach may be; None: any event."""
        if reach is None:
            return self.has_rows
        return self.has_rows & (self.first_event_ms < reach.end_ms) & (self.last_event_ms >= reach.start_ms)


@dataclass(frozen=True, slots=True)
class _Compared:
    """The input files that came or went, as far as they matter; a file that changed may be in both lists."""

    came: tuple[InputFile, ...]
    went: tuple[InputFile, ...]
    changes: Mapping[str, ChangeKind]

    @classmethod
    def from_inputs(
        cls, inputs: _Inputs, came: Mask, went: Sequence[InputFile], reach: Interval | None
    ) -> _Compared:
        near = tuple(inputs.files[at] for at in _places(came & inputs.may_hold(reach)))
        away = tuple(file for file in went if file.rows and (reach is None or file.may_hold(reach)))
        new = {inputs.files[at].path for at in _places(came)} if went else {file.path for file in near}
        old = {file.path for file in went}
        changes = {file.path: ChangeKind.CHANGED if file.path in old else ChangeKind.NEW for file in near}
        changes |= {file.path: ChangeKind.CHANGED if file.path in new else ChangeKind.REMOVED for file in away}
        return cls(near, away, changes)


def _unsettles(
    plan: PlanInputs, definition: Definition, inputs: _Inputs, came: Mask, went: Sequence[InputFile]
) -> str | None:
    """The first file that moves the watermarks under which others were on time, late or dropped.

    Where all events count in the end, no watermark matters; nor does one after all that was replayed had arrived.
    """
    if plan.mode is Mode.RECOMPUTE or definition.backfill.publish == "final":
        return None
    among = _places(came & inputs.has_rows & (inputs.first_arrival_ms <= plan.clock_end_ms))
    if among:
        return inputs.files[among[0]].path
    return went[0].path if went else None


def _places(wanted: Mask) -> list[int]:
    found: list[int] = np.flatnonzero(wanted).tolist()
    return found


def _reach(definition: Definition, days: set[int]) -> Interval | None:
    """The event times that windows of these days can hold; None for sessions, which know no bounds."""
    spec = definition.window.spec()
    if isinstance(spec, Session):
        return None
    return read_interval(Interval(min(days), max(days) + DAY_MS), definition)


def _touches(
    definition: Definition, compared: _Compared, index: KeyIndex, reach: Interval | None
) -> list[ChangedRecords]:
    found: list[ChangedRecords] = []
    for file in compared.came:
        found += _came_or_may_have(file, compared.changes[file.path], definition, index, reach)
    for file in compared.went:
        found += _went(file, compared.changes[file.path], index)
    return found


def _came_or_may_have(
    file: InputFile, change: ChangeKind, definition: Definition, index: KeyIndex, reach: Interval | None
) -> list[ChangedRecords]:
    """Of a damaged file nobody knows more than its footer's bounds."""
    try:
        return list(_came(file, change, definition, index, reach))
    except UnreadableError:
        return [_somewhere(file, change)]


def _came(
    file: InputFile, change: ChangeKind, definition: Definition, index: KeyIndex, reach: Interval | None
) -> Iterator[ChangedRecords]:
    """Of two copies of a record the first to arrive counts: one may push out another, of another key."""
    may_push_out = _may_differ_in_key(definition)
    for held in index.load_slices(file):
        if reach is None or reach.overlaps(Interval(held.first_ms, held.last_ms + 1)):
            stretch = (file.path, change, held.first_ms, held.last_ms)
            yield ChangedRecords(*stretch, held.events, held.key, is_of_any_key=may_push_out)
            if may_push_out and reach is None:
                yield ChangedRecords(*stretch, 0, held.key, is_added=False, is_of_any_key=True)


def _may_differ_in_key(definition: Definition) -> bool:
    """Whether two records that count as copies can have different keys."""
    source = definition.source
    return bool(source.deduplicate_on) and not set(source.key) <= set(source.deduplicate_on)


def _went(file: InputFile, change: ChangeKind, index: KeyIndex) -> Iterator[ChangedRecords]:
    """What a file held is known if it was ever read here, else its footer's bounds have to do."""
    may_bring_in = _may_differ_in_key(index.definition)
    known = index.is_known(file)
    if known is None:
        yield _somewhere(file, change)
        return
    for held in known:
        stretch = (file.path, change, held.first_ms, held.last_ms)
        yield ChangedRecords(*stretch, held.events, held.key, is_added=False, is_of_any_key=may_bring_in)


def _somewhere(file: InputFile, change: ChangeKind) -> ChangedRecords:
    first_ms = -(2**62) if file.min_event_ms is None else file.min_event_ms
    last_ms = 2**62 if file.max_event_ms is None else file.max_event_ms
    return ChangedRecords(file.path, change, first_ms, last_ms, is_added=False, is_of_any_key=True)


def _day_json(day: StaleDay, changes: Mapping[str, ChangeKind]) -> dict[str, Any]:
    return {
        "day": instant_text(day.day_ms)[:10],
        "mode": day.mode.value if day.mode else None,
        "reasons": list(day.reasons),
        "windows": [
            {
                "window_start": instant_text(window.window.start_ms),
                "window_end": instant_text(window.window.end_ms),
                "keys": [json.loads(key) for key in sorted(window.keys)],
                "is_of_any_key": window.is_of_any_key,
                "files": [
                    {"path": file, "change": changes[file].value, "events": events}
                    for file, events in sorted(count_by_file(window.touches).items())
                ],
            }
            for window in day.windows
        ],
    }
