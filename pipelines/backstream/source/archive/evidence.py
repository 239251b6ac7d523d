"""Examine an archive, and describe what was found as a small table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import chain

from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import DAY_MS, SECOND_MS, duration_text, instant_text
from backstream.source.archive.columns import ColumnProfile, left_out_lines, profile_columns
from backstream.source.archive.date_pairs import join_dates_and_clocks
from backstream.source.archive.encodings import GUESSED_ENCODINGS
from backstream.source.archive.files import Archive, list_archive
from backstream.source.archive.job import JobEvidence, examine_job, job_lines
from backstream.source.archive.preset_names import Preset
from backstream.source.archive.presets import apply_preset, detect_preset
from backstream.source.archive.roles import (
    QUANTILES,
    Choice,
    Lateness,
    Roles,
    guess_arrival,
    guess_roles,
    measure_lateness,
    share_not_before,
    share_rising,
    share_unique,
)
from backstream.source.archive.sample import read_sample
from backstream.source.archive.sampled import Sample, shown_text
from backstream.source.archive.times import FIRST_YEAR, LAST_YEAR, SampledTime, find_times, read_as_time
from backstream.source.archive.unread_times import explain_unread
from backstream.text import share_text

_MAX_ROWS = 40
_MAX_CELL = 28
_KILO = 1_024


@dataclass(frozen=True)
class Evidence:
    """An archive with a sample of its records, its columns, and the guesses of their roles."""

    archive: Archive
    sample: Sample
    columns: Sequence[ColumnProfile]
    roles: Roles
    preset: Preset | None
    times: Mapping[str, SampledTime]
    """The columns with times by path."""
    job: JobEvidence | None = None
    """The job of Structured Streaming that has read the events; None if it is not known."""

    @property
    def event_time(self) -> SampledTime:
        """Return the column of the event time."""
        return self.times[self.roles.event_time.value or ""]

    @property
    def arrival_time(self) -> SampledTime | None:
        """Return the column of the arrival time; None if the records have none."""
        return self.times.get(self.roles.arrival_time.value or "")

    @property
    def lateness(self) -> Lateness | None:
        """Return how late the records of the sample are; None without an arrival time."""
        if self.arrival_time is None:
            return None
        partition, sequence = (self.column(choice.value) for choice in (self.roles.partition, self.roles.sequence))
        return measure_lateness(self.event_time, self.arrival_time, partition, sequence)

    def column(self, path: str | None) -> ColumnProfile | None:
        """Return the column with a path; None for no path."""
        return next((column for column in self.columns if column.path == path), None)

    def with_choice(self, role: str, value: str | None) -> Evidence:
        """Return the evidence with the answer of the user for one role."""
        choice = replace(getattr(self.roles, role), value=value, is_certain=True)
        roles = replace(self.roles, **{role: choice})
        if role == "event_time" and value != self.roles.event_time.value:
            roles = replace(roles, arrival_time=guess_arrival(self.times[value or ""], list(self.times.values())))
        evidence = replace(self, roles=roles)
        return evidence.with_job(self.job.address) if self.job else evidence

    def with_job(self, address: str) -> Evidence:
        """Return the evidence with the job that has read the events, and without roles that it decides.

        Args:
            address: the checkpoint of the job, or a folder of its kept batches.

        Raises:
            SpecError: when it is neither, or the job has read other events.
        """
        columns = [self.column(choice.value) for choice in (self.roles.partition, self.roles.sequence)]
        position = (columns[0], columns[1]) if columns[0] and columns[1] else None
        job = examine_job(address, self.archive, self.sample, position)
        # A record arrives with its batch. The job has counted equal records, but it has read each offset once.
        order = tuple(column.path for column in position) if position and job.source.topic else ()
        roles = replace(self.roles, arrival_time=Choice(), deduplicate_on=order)
        if not job.source.topic:
            roles = replace(roles, partition=Choice(), sequence=Choice())
        return replace(self, roles=roles, job=job)

    def with_pattern(self, time: SampledTime, pattern: str) -> Evidence:
        """Return the evidence with the answer of the user for the pattern of a time."""
        chosen = next(each for each in (time, *time.rivals) if each.pattern == pattern)
        return self.with_time(replace(chosen, rivals=(), is_order_shown=True))

    def with_time(self, time: SampledTime) -> Evidence:
        """Return the evidence with another reading of the column of a time."""
        return replace(self, times={**self.times, time.column.path: time})

    @property
    def event_days(self) -> tuple[int, int] | None:
        """Return the first day of the events and the day after their last one, in epoch ms; None without times."""
        values = self.event_time.present_ms
        if not values:
            return None
        first_ms, last_ms = min(values), max(values)
        return first_ms - first_ms % DAY_MS, last_ms - last_ms % DAY_MS + DAY_MS

    def share_without_events(self, size_ms: int) -> float | None:
        """Return the share of the windows, per partition, without events; None if the sample is not complete."""
        if not self.sample.is_complete or size_ms <= 0 or self.event_days is None:
            return None
        column = self.column(self.roles.partition.value)
        partitions = column.values if column else [None] * len(self.sample.records)
        pairs = zip(partitions, self.event_time.times_ms, strict=True)
        filled = {(partition, at_ms // size_ms) for partition, at_ms in pairs if at_ms is not None}
        since_ms, until_ms = self.event_days
        windows = max(1, (until_ms - since_ms) // size_ms) * len({partition for partition, _ in filled})
        return max(0.0, 1 - len(filled) / windows)


def examine_archive(location: str, preset: Preset | None, event_time: str | None = None) -> Evidence:
    """Return what lies at a location, with the guesses of a preset, or of the one that fits.

    Args:
        location: a folder, a file, a path with wildcards, or a URI.
        preset: the preset; None: the one that fits, if any.
        event_time: the column of the event time; None: the best guess.

    Raises:
        PlanError: when there are no files, no records, or no times.
        SpecError: when a requested preset does not fit, or the column of the event time cannot be one.
    """
    archive = list_archive(location)
    sample = read_sample(archive)
    columns: Sequence[ColumnProfile] = profile_columns(sample, archive.folder_columns)
    if not archive.is_log:
        columns = [*columns, *join_dates_and_clocks(columns)]
    preset = preset or detect_preset(columns)
    if preset:
        columns, roles = apply_preset(preset, columns)
    else:
        roles = guess_roles(columns, find_times(columns))
    times = {time.column.path: time for time in find_times(columns)}
    if event_time:
        time = _read_named(columns, event_time, location)
        times.setdefault(time.column.path, time)
        if preset is None:  # the column has no other role
            roles = guess_roles(columns, [*times.values()])
        evidence = Evidence(archive, sample, columns, roles, preset, times)
        return evidence.with_choice("event_time", time.column.path)
    if roles.event_time.value is None:
        raise PlanError(explain_unread(columns, location))
    for choice in (roles.event_time, roles.arrival_time):  # a preset knows times by their names
        if choice.value and choice.value not in times:
            times[choice.value] = _read_named(columns, choice.value, location)
    return Evidence(archive, sample, columns, roles, preset, times)


def _read_named(columns: Sequence[ColumnProfile], path: str, location: str) -> SampledTime:
    """Return the times of a column that the user or a preset names."""
    column = next((column for column in columns if column.path.lower() == path.lower()), None)
    if column is None:
        names = ", ".join(shown_text(each.path) for each in columns[:20])
        msg = f"no column of {location} is {path!r} (--event-time)\n  the columns are {names}"
        raise SpecError(msg)
    time = read_as_time(column)
    if time is None:
        msg = (
            f"column {path!r} cannot be the event time, because its type is {column.kind} (--event-time)"
            "\n\nhint: name a column with timestamps, numbers, or texts"
        )
        raise SpecError(msg)
    return time


def evidence_lines(evidence: Evidence) -> Iterator[str]:
    """Yield lines that show the files, the columns with their evidence, and the lateness of the records."""
    archive, sample = evidence.archive, evidence.sample
    others = f", {_count_text(len(archive.others), 'other file')} ignored" if archive.others else ""
    yield (
        f"{archive.location}: {_count_text(len(archive.files), archive.format + ' file')},"
        f" {_size(archive.size_bytes)}{others};"
        f" read {_count_text(len(sample.records), 'record')} of {_count_text(sample.files_read, 'file')}"
    )
    yield f"preset: {evidence.preset.value if evidence.preset else 'none'}"
    yield ""
    yield from _table(evidence)
    yield from left_out_lines(sample)
    yield ""
    yield from _lateness_lines(evidence)
    if sample.encoding in GUESSED_ENCODINGS:
        values = (value for record in sample.records for value in record.values())
        text = next((value for value in values if isinstance(value, str) and not value.isascii()), "")
        example = f", e.g., {shown_text(text)!r}" if text else ""
        yield (
            f"encoding: {sample.encoding} is a guess, since the text is not UTF-8{example}; if letters are wrong,"
            " change encoding in [source.options]"
        )
    if sample.unreadable:
        path, text = sample.unreadable[0]
        yield f"unreadable: {_count_text(len(sample.unreadable), 'line')}, e.g., {text!r} in {path}"


def _table(evidence: Evidence) -> Iterator[str]:
    head = ("column", "type", "nulls", "distinct", "from", "to", "evidence")
    shown = sorted(evidence.columns, key=lambda column: not _roles_of(evidence, column))[:_MAX_ROWS]
    rows = [head, *(_row(evidence, column) for column in shown)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head) - 1)]
    for row in rows:
        cells = (
            cell.rjust(width) if name in ("nulls", "distinct") else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=False)
        )
        yield "  ".join([*cells, row[-1]]).rstrip()
    if len(evidence.columns) > len(shown):
        yield f"and {len(evidence.columns) - len(shown)} more columns"


def _row(evidence: Evidence, column: ColumnProfile) -> tuple[str, ...]:
    low, high = _bounds(evidence, column)
    nulls = share_text(column.nulls, len(column.values))
    remarks = "; ".join(
        chain(_roles_of(evidence, column), _remarks(evidence, column), _preset_note(evidence, column))
    )
    kind, path = shown_text(column.kind, _MAX_CELL), shown_text(column.path)
    return path, kind, nulls, f"{column.distinct:,}", low, high, remarks


def _roles_of(evidence: Evidence, column: ColumnProfile) -> list[str]:
    roles = evidence.roles
    by_role: dict[str, Choice] = {
        "event time": roles.event_time,
        "arrival time": roles.arrival_time,
        "partition": roles.partition,
        "sequence": roles.sequence,
        "key": roles.key,
    }
    found = [name for name, choice in by_role.items() if choice.value == column.path]
    return [*found, *(["identity"] if column.path in roles.deduplicate_on else [])]


def _preset_note(evidence: Evidence, column: ColumnProfile) -> list[str]:
    note = evidence.roles.notes.get(column.path)
    return [note] if note else []


def _remarks(evidence: Evidence, column: ColumnProfile) -> Iterator[str]:
    """Yield what the values show: the form of times, the order, and repeated values."""
    roles, time = evidence.roles, evidence.times.get(column.path)
    groups = evidence.column(roles.partition.value)
    if time is not None:
        yield time.form
        if time.rivals and time.pattern:
            yield _rivals_text(time)
        yield from _unread_lines(evidence, time)
        if column.path == roles.arrival_time.value:
            yield f"not before the event time in {_share(share_not_before(evidence.event_time, time))}"
        is_time = column.path in (roles.arrival_time.value, roles.event_time.value)
        if is_time and len(time.present_ms) > 1:
            yield f"not falling in {_share(share_rising(time, groups.values if groups else None))}"
    if column.path == roles.sequence.value:
        within = " within a partition" if groups else ""
        yield f"distinct in {_share(share_unique(column, groups.values if groups else None))}{within}"
    elif len(roles.deduplicate_on) == 1 and column.path in roles.deduplicate_on:
        repeated = len(column.present) - column.distinct
        yield f"{_count_text(repeated, 'repeated value')}" if repeated else "no repeated values"
    if column.is_folder:
        yield "from the names of folders"
    if column.derived:
        yield f"from {shown_text(column.derived)}"


def _rivals_text(time: SampledTime) -> str:
    """Return which other patterns fit, and whether the records show that the chosen one is right."""
    others = ", ".join(rival.pattern or "" for rival in time.rivals)
    return f"{others} is possible, but unlikely" if time.is_order_shown else f"{others} is as likely"


def _unread_lines(evidence: Evidence, time: SampledTime) -> Iterator[str]:
    """Yield which values are no plausible times."""
    count = sum(time.unread.values())
    if count and not time.lacks:
        shown = json.dumps(shown_text(min(time.unread), _MAX_CELL), ensure_ascii=False)
        values = (
            f"{_count_text(count, 'value')} cannot be read, {'all' if len(time.unread) == 1 else 'e.g.,'} {shown}"
        )
        is_one_in_csv = len(time.unread) == 1 and evidence.archive.format == "csv"
        yield f"{values}{f': set nullValue = {shown} in [source.options]' if is_one_in_csv else ''}"
    if time.outside:
        years = f"the years {FIRST_YEAR} to {LAST_YEAR}"
        yield f"{_count_text(len(time.outside), 'time')} outside of {years}, e.g., {instant_text(time.outside[0])}"


def _bounds(evidence: Evidence, column: ColumnProfile) -> tuple[str, str]:
    time = evidence.times.get(column.path)
    if time is not None and time.present_ms:
        return instant_text(min(time.present_ms)), instant_text(max(time.present_ms))
    values = [value for value in column.present if isinstance(value, str | int | float | date | datetime)]
    try:
        return (shown_text(min(values), _MAX_CELL), shown_text(max(values), _MAX_CELL)) if values else ("", "")
    except TypeError:  # values of several types have no order
        return "", ""


def _lateness_lines(evidence: Evidence) -> Iterator[str]:
    if evidence.job:
        yield f"job of Structured Streaming: {evidence.job.address}"
        yield from (f"  {line}" for line in job_lines(evidence.job))
        return
    lateness = evidence.lateness
    if lateness is None:
        yield "no arrival time: a run can recompute, but not replay what the live stream did"
        return
    yield f"arrival delay: {_quantile_text(lateness.delay_ms)}"
    yield f"out of order:  {_quantile_text(lateness.behind_ms)}"
    if lateness.before:
        yield f"{_count_text(lateness.before, 'record')} of {lateness.records:,} arrive before their event time"


def _quantile_text(values_ms: Sequence[int]) -> str:
    named = zip(QUANTILES, values_ms, strict=True)
    return ", ".join(
        f"{'maximum' if share == 1 else f'{share * 100:g}%'} {rounded_duration(value_ms)}"
        for share, value_ms in named
    )


def rounded_duration(value_ms: int) -> str:
    """Return a duration in seconds from a minute on."""
    return duration_text(value_ms if abs(value_ms) < 60 * SECOND_MS else value_ms - value_ms % SECOND_MS)


def _share(share: float) -> str:
    return share_text(share)


def _count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size_bytes < _KILO:
            return f"{size_bytes:,.0f} {unit}"
        size_bytes /= _KILO
    return f"{size_bytes:,.1f} TB"
