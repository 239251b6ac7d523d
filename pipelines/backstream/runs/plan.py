"""Define the plan of a run: its inputs, chunks and tables. A plan is immutable and identified by its hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from backstream.errors import PlanError
from backstream.eventtime.intervals import Interval, LocalDays
from backstream.runs.home import Home, RunFolder
from backstream.runs.input_files import (
    FileList,
    ImplausibleTimes,
    InexactNumbers,
    MisplacedRecords,
    PinnedInput,
    SkippedFile,
)
from backstream.runs.packing import (
    expand_ranges,
    expand_run_lengths,
    from_columns,
    run_lengths,
    to_columns,
    to_deltas,
    to_ranges,
)
from backstream.runs.plan_summary import PlanSummary
from backstream.runs.table_schemas import ROW_POSITION
from backstream.storage.files import load_json, write_text

PLAN_VERSION = 9
_HASH_LENGTH = 12
_OMITTED_IF_EMPTY = (
    "overrides",
    "gate_override",
    "local_days",
    "time_zone_data",
    "columns",
    "absent",
    "ignored",
    "prepared",
    "skipped",
    "damaged",
    "removed",
    "unopened",
    "equal_files",
    "misplaced",
    "inexact",
    "implausible",
    "element_ids",
    "code",
    "source_snapshots",
    "side_inputs",
    "base_files",
)


DIRECT_TRIGGERS = ("cli", "python")
"""Triggers of runs without Airflow: the CLI and the Python API resume the runs of each other."""
_MAX_SLUG = 120
"""The length of a trigger in a run id, which names a folder; Airflow's run ids have up to 250 characters."""


class Mode(StrEnum):
    """The treatment of arrival time in a run."""

    RECOMPUTE = "recompute"
    """Only event time counts: the watermark is -inf, then +inf; no record is late."""
    REPLAY = "replay"
    """Arrival order is reproduced, with the watermark in force at each record's arrival."""


class ArrivalOrder(StrEnum):
    """The source of a run's arrival order."""

    RECORDED = "recorded"
    """Partition, arrival time and sequence are recorded."""
    TIES_BROKEN = "ties_broken"
    """No sequence is recorded: a rule breaks ties in arrival time."""
    UNKNOWN = "unknown"
    """No arrival time is recorded: only recompute is possible."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of recorded events, described by its footer; None for values that the footer lacks.

    If `is_unreadable`, no record of the file has both times.
    """

    path: str
    rows: int
    size_bytes: int
    min_event_ms: int | None = None
    max_event_ms: int | None = None
    min_arrival_ms: int | None = None
    max_arrival_ms: int | None = None
    modified_ms: int = 0
    is_unreadable: bool = False

    def may_hold(self, interval: Interval) -> bool:
        """Return whether the file may contain an event of the interval."""
        if self.min_event_ms is None or self.max_event_ms is None:
            return self.rows > 0
        return self.rows > 0 and interval.overlaps(Interval(self.min_event_ms, self.max_event_ms + 1))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A unit of work that owns the windows that start in `[start_ms, end_ms)`.

    It reads the events of `[start_ms, halo_end_ms)`; those from `end_ms` on are its halo. `files` are positions
    in the plan's `inputs`. `expected_events` is an estimate from their footers.
    """

    chunk_id: str
    start_ms: int
    end_ms: int
    halo_end_ms: int
    files: tuple[int, ...]
    expected_events: int

    @property
    def interval(self) -> Interval:
        """The interval in which its windows start."""
        return Interval(self.start_ms, self.end_ms)


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table of the lake for the job; `columns` are name, type, field id, and whether it is required.

    `location` is the folder of a table on a disk, or the address of one in an object store.
    """

    name: str
    location: str
    columns: tuple[tuple[str, str, int, bool], ...]
    day_column: str | None = None


@dataclass(frozen=True)
class Plan:
    """All input of a run; a retry runs the same plan.

    `definition` is the resolved definition (with environment variables and overrides), `definition_hash` that of
    the file's content. `base_snapshots` maps each table to its snapshot at planning time (None: empty). In a
    catalog without history, `base_files` has a digest of its files in the range. `tables` maps a table's suffix to
    its schema and location.

    `overrides` are the keys of the definition that this run overrides, with their values as a person writes them.
    `gate_override` is the reason to publish a result that fails the gate; empty: it is not published. `local_days`
    are the requested days of a time zone; the range contains them all. `time_zone_data` is the version of the
    time-zone data by which windows in local time were cut.

    `columns` are the source columns of the definition, each with the Spark SQL type that holds its values in all
    files. `absent` lists the files without one of them, by column; the column is null there. `ignored` files are
    not data, by reason. `skipped` files are damaged and left out. `damaged` files are damaged but not needed by
    this range, according to the bounds in an earlier plan. `removed` are deleted files that published runs of this
    range read. `unopened` files are in folders that cannot hold the range. `equal_files` have the content of
    another file. `misplaced` are the records that are not in the folder of their event time. `inexact` are the
    numbers of text files that a declared type cannot hold. `implausible` are the records whose times are far from
    those of all others, over all inputs. `prepared` has the numbers of all records of a prepared source by
    `BatchCounts`. `code` maps each class or function of the user to
    the hash of its source. `element_ids` are the field ids of list elements, by the suffix of a table and the
    column. `source_snapshots` are the snapshots of Iceberg tables that the run reads. `side_inputs` are the
    versions of the inputs that a transformation joined with the records.
    """

    dataset: str
    definition: Mapping[str, Any]
    definition_hash: str
    definition_path: str
    planned_by_version: str
    mode: Mode
    arrival_order: ArrivalOrder
    since_ms: int
    until_ms: int
    clock_start_ms: int
    clock_end_ms: int
    home_location: str
    inputs: tuple[InputFile, ...]
    chunks: tuple[Chunk, ...]
    tables: Mapping[str, PlannedTable] = field(default_factory=dict)
    base_snapshots: Mapping[str, int | None] = field(default_factory=dict)
    base_files: Mapping[str, str] = field(default_factory=dict)
    triggered_by: str = "cli"
    reason: str = ""
    plan_version: int = PLAN_VERSION
    overrides: Mapping[str, str] = field(default_factory=dict)
    gate_override: str = ""
    local_days: LocalDays | None = None
    time_zone_data: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, FileList] = field(default_factory=dict)
    ignored: Mapping[str, FileList] = field(default_factory=dict)
    skipped: tuple[SkippedFile, ...] = ()
    damaged: tuple[InputFile, ...] = ()
    removed: FileList = field(default_factory=FileList)
    unopened: FileList = field(default_factory=FileList)
    equal_files: FileList = field(default_factory=FileList)
    misplaced: tuple[MisplacedRecords, ...] = ()
    inexact: tuple[InexactNumbers, ...] = ()
    implausible: tuple[ImplausibleTimes, ...] = ()
    prepared: Mapping[str, int] = field(default_factory=dict)
    element_ids: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    source_snapshots: Mapping[str, int] = field(default_factory=dict)
    side_inputs: Mapping[str, PinnedInput] = field(default_factory=dict)

    @cached_property
    def plan_hash(self) -> str:
        """The hash of the whole content."""
        return _hash(self._content())

    def _content(self) -> dict[str, Any]:
        """Return the content without empty optional fields.

        A plan without them has the same hash as before the fields existed.
        """
        omitted = {name for name in _OMITTED_IF_EMPTY if not getattr(self, name)}
        content = asdict(replace(self, inputs=(), chunks=()))
        columns = {"inputs": to_columns(self.inputs, InputFile), "chunks": _pack_chunks(self.chunks)}
        return {name: value for name, value in (content | columns).items() if name not in omitted}

    @property
    def run_id(self) -> str:
        """The slug of the trigger and the hash of the plan: another plan is another run."""
        return f"{slug(self.triggered_by)}.{self.plan_hash}"

    @property
    def is_direct(self) -> bool:
        """True if a person started the run without Airflow, by the command line or the Python API."""
        return self.triggered_by in DIRECT_TRIGGERS

    @property
    def range(self) -> Interval:
        """The backfill range."""
        return Interval(self.since_ms, self.until_ms)

    @property
    def expected_events(self) -> int:
        """The number of expected events of all chunks."""
        return sum(chunk.expected_events for chunk in self.chunks)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that identify a published row within its window."""
        keys = tuple(self.definition.get("source", {}).get("key", ()))
        return (*keys, *ROW_POSITION) if self.definition.get("process") else keys

    @property
    def home(self) -> Home:
        """The home of the run."""
        return Home.from_location(self.home_location)

    @property
    def folder(self) -> RunFolder:
        """The folder of the run."""
        return self.home.run(self.dataset, self.run_id)

    @property
    def location(self) -> str:
        """The path of the plan's file, or its address if the home is in an object store."""
        return self.home.location_of(self.folder.plan)

    @property
    def summary(self) -> PlanSummary:
        """The part of the plan that pages show."""
        return PlanSummary(
            dataset=self.dataset,
            run_id=self.run_id,
            plan_hash=self.plan_hash,
            triggered_by=self.triggered_by,
            reason=self.reason,
            mode=self.mode.value,
            since_ms=self.since_ms,
            until_ms=self.until_ms,
            expected_events={chunk.chunk_id: chunk.expected_events for chunk in self.chunks},
            staging=tuple(str(self.staging(suffix)) for suffix in self.tables),
        )

    def staging(self, suffix: str) -> Path:
        """Return the folder of files staged on a disk: that of the table, or in the home for an object store."""
        table = self.tables[suffix]
        is_on_disk = table.location.startswith("/")
        root = Path(table.location) if is_on_disk else self.home.staging(table.name)
        return root / "data" / self.run_id

    def stored_staging(self, suffix: str) -> str:
        """Return the place of staged files where the table itself is, which may be in an object store."""
        return f"{self.tables[suffix].location}/data/{self.run_id}"

    def chunk(self, chunk_id: str) -> Chunk:
        """Return a chunk by its id.

        Raises:
            PlanError: when the plan has no such chunk.
        """
        for chunk in self.chunks:
            if chunk.chunk_id == chunk_id:
                return chunk
        msg = f"no chunk {chunk_id!r} in plan {self.run_id}, which has {len(self.chunks)}"
        raise PlanError(msg)

    def write(self) -> Path:
        """Write the plan into its run folder and return the file; the same plan is the same file.

        The summary is written first, so that every plan has one.
        """
        self.summary.write(self.folder.summary)
        content = self._content() | {"run_id": self.run_id, "plan_hash": self.plan_hash}
        write_text(self.folder.plan, json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n")
        return self.folder.plan

    @classmethod
    def load(cls, location: str) -> Self:
        """Read the plan at a path or an address, with the changes of other machines; see `read`.

        Raises:
            StorageError: when the object store cannot be read.
        """
        return cls.read(RunFolder.from_plan(location).plan)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the plan from a file.

        Raises:
            LedgerError: when there is no such file.
            PlanError: when another version wrote it, or its content differs from its hash.
        """
        content = load_json(path, "plan")
        recorded = content.pop("plan_hash", None)
        content.pop("run_id", None)
        if content.get("plan_version") != PLAN_VERSION:
            version = content.get("plan_version")
            msg = f"plan version must be {PLAN_VERSION}, got {version!r}: create a new plan ({path})"
            raise PlanError(msg)
        if _hash(content) != recorded:
            msg = f"plan was changed after it was made: hash {_hash(content)}, recorded {recorded} ({path})"
            raise PlanError(msg)
        return cls(**content | _from_json_types(content))


def definition_id(path: Path) -> str:
    """Return an id of a definition's file, a hash of its path: a table is read on other machines too."""
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:_HASH_LENGTH]


def slug(trigger: str) -> str:
    """Return the trigger of a run in the form for run ids; different triggers may have the same slug."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", trigger)[:_MAX_SLUG]


def _hash(content: Mapping[str, Any]) -> str:
    """Return the hash of a content; a plan and its file have the same hash."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_HASH_LENGTH]


def _from_json_types(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan that are plain objects in JSON, converted to their types."""
    local_days = content.get("local_days")
    return {
        "absent": _file_lists(content.get("absent", {})),
        "ignored": _file_lists(content.get("ignored", {})),
        "prepared": content.get("prepared", {}),
        "skipped": tuple(SkippedFile(**file) for file in content.get("skipped", ())),
        "damaged": tuple(InputFile(**file) for file in content.get("damaged", ())),
        **_file_lists({name: content.get(name, {}) for name in ("removed", "unopened", "equal_files")}),
        "misplaced": tuple(MisplacedRecords(**records) for records in content.get("misplaced", ())),
        "inexact": tuple(InexactNumbers(**numbers) for numbers in content.get("inexact", ())),
        "implausible": tuple(ImplausibleTimes(**times) for times in content.get("implausible", ())),
        "side_inputs": {name: PinnedInput(**pin) for name, pin in content.get("side_inputs", {}).items()},
        "local_days": LocalDays(**local_days) if local_days else None,
        "mode": Mode(content["mode"]),
        "arrival_order": ArrivalOrder(content["arrival_order"]),
        "inputs": tuple(InputFile(*values) for values in from_columns(content["inputs"], InputFile)),
        "chunks": _unpack_chunks(content["chunks"]),
        "tables": {
            suffix: PlannedTable(**table | {"columns": tuple(tuple(column) for column in table["columns"])})
            for suffix, table in content["tables"].items()
        },
    }


_INSTANTS = ("start_ms", "end_ms", "halo_end_ms")


def _pack_chunks(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return chunks by columns: chunks of equal length need little more than their numbers of events."""
    columns = to_columns(chunks, Chunk)
    columns |= {name: to_deltas(columns[name]) for name in _INSTANTS}
    columns["files"] = [to_ranges(files) for files in columns["files"]]
    return {name: run_lengths(values) for name, values in columns.items()}


def _unpack_chunks(packed: Mapping[str, Sequence[tuple[Any, int]]]) -> tuple[Chunk, ...]:
    columns = {name: expand_run_lengths(values) for name, values in packed.items()}
    columns |= {name: list(accumulate(columns[name])) for name in _INSTANTS}
    columns["files"] = [expand_ranges(text) for text in columns["files"]]
    return tuple(Chunk(*values) for values in from_columns(columns, Chunk))


def _file_lists(content: Mapping[str, Any]) -> dict[str, FileList]:
    return {
        name: FileList(files.get("count", 0), tuple(files.get("first", ()))) for name, files in content.items()
    }
