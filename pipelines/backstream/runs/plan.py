"""A plan: what a run reads, in which chunks, against which state of the lake. Immutable, known by its hash."""

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
from backstream.runs.home import Home, RunFolder, load_json, write_text
from backstream.runs.input_files import FileList, SkippedFile
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

PLAN_VERSION = 3
_HASH_LENGTH = 12
_MAY_BE_UNSAID = (
    "overrides",
    "gate_override",
    "local_days",
    "columns",
    "absent",
    "ignored",
    "skipped",
    "damaged",
    "gone",
)


class Mode(StrEnum):
    """How time is treated."""

    RECOMPUTE = "recompute"
    """Only event time counts: watermarks -inf, then +inf; nothing is late."""
    REPLAY = "replay"
    """Arrival order is reproduced: the watermark in force at each record's arrival."""


class ArrivalOrder(StrEnum):
    """What the arrival order of a run rests on."""

    RECORDED = "recorded"
    """Partition, arrival time and sequence were recorded."""
    TIES_BROKEN = "ties_broken"
    """Ties in arrival time were broken by rule: no sequence was recorded."""
    UNKNOWN = "unknown"
    """No arrival time was recorded: only recompute is possible."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of recorded events, as its footer describes it; None where the footer does not tell."""

    path: str
    rows: int
    size_bytes: int
    min_event_ms: int | None = None
    max_event_ms: int | None = None
    min_arrival_ms: int | None = None
    max_arrival_ms: int | None = None
    modified_ms: int = 0

    def may_hold(self, interval: Interval) -> bool:
        """Whether an event of the interval may be in the file."""
        if self.min_event_ms is None or self.max_event_ms is None:
            return self.rows > 0
        return self.rows > 0 and interval.overlaps(Interval(self.min_event_ms, self.max_event_ms + 1))


@dataclass(frozen=True, slots=True)
class Chunk:
    """One unit of work: it owns the windows that start in `[start_ms, end_ms)`.

    It reads the events of `[start_ms, halo_end_ms)`; those from `end_ms` on are its halo.
    `files` are positions in the plan's `inputs`; `expected_events` is an estimate from their footers.
    """

    chunk_id: str
    start_ms: int
    end_ms: int
    halo_end_ms: int
    files: tuple[int, ...]
    expected_events: int

    @property
    def interval(self) -> Interval:
        """The windows' starts."""
        return Interval(self.start_ms, self.end_ms)


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table of the lake as the job must write it: where, and each column's name, type, field id, need.

    `location` is the folder of a table on a disk, or the address of one in an object store.
    """

    name: str
    location: str
    columns: tuple[tuple[str, str, int, bool], ...]
    day_column: str | None = None


@dataclass(frozen=True)
class Plan:
    """Everything a run needs to know; a retry runs the same plan.

    `definition` is the resolved definition (environment filled in), `definition_hash` that of the file's
    content. `base_snapshots` maps each table to its snapshot when planned (None: empty).
    `tables` maps a table's suffix to how it is written. `overrides` are keys of the definition that this run was
    asked to take otherwise, with their values as a person writes them; `definition` has them in it.
    `gate_override` is the reason for publishing what fails the gate; empty: it is not published.
    `local_days` are the days that were asked for by the clocks of a time zone; the range holds them all.
    `columns` are the source's columns that the definition names, each with the Spark SQL type that holds it in all
    files; `absent` are those of them that some files lack: they are null there. `ignored` files are not data, by
    reason. `skipped` files are damaged and left out; `damaged` ones are damaged, but not needed by this range, as
    far as an earlier plan knew their bounds. `gone` are files that published runs of this range read.
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
    home: str
    inputs: tuple[InputFile, ...]
    chunks: tuple[Chunk, ...]
    tables: Mapping[str, PlannedTable] = field(default_factory=dict)
    base_snapshots: Mapping[str, int | None] = field(default_factory=dict)
    triggered_by: str = "cli"
    reason: str = ""
    plan_version: int = PLAN_VERSION
    overrides: Mapping[str, str] = field(default_factory=dict)
    gate_override: str = ""
    local_days: LocalDays | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, FileList] = field(default_factory=dict)
    ignored: Mapping[str, FileList] = field(default_factory=dict)
    skipped: tuple[SkippedFile, ...] = ()
    damaged: tuple[InputFile, ...] = ()
    gone: FileList = field(default_factory=FileList)

    @cached_property
    def plan_hash(self) -> str:
        """Hash of the whole content."""
        return _hash(self._content())

    def _content(self) -> dict[str, Any]:
        """Without what was not said: a plan that overrides nothing is the same as before one could."""
        unsaid = {name for name in _MAY_BE_UNSAID if not getattr(self, name)}
        said = asdict(replace(self, inputs=(), chunks=()))
        packed = {"inputs": to_columns(self.inputs, InputFile), "chunks": _packed(self.chunks)}
        return {name: value for name, value in (said | packed).items() if name not in unsaid}

    @property
    def run_id(self) -> str:
        """What asked for the run, and the plan's hash: another plan is another run."""
        return f"{slug(self.triggered_by)}.{self.plan_hash}"

    @property
    def range(self) -> Interval:
        """The backfill range."""
        return Interval(self.since_ms, self.until_ms)

    @property
    def folder(self) -> RunFolder:
        """Where the run leaves what it made."""
        return RunFolder(Path(self.home) / "runs" / self.dataset / self.run_id)

    @property
    def summary(self) -> PlanSummary:
        """As much of it as pages show."""
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
        """Where the run stages files of a table: in the table's own folder; for an object store, in the home."""
        table = self.tables[suffix]
        is_on_disk = table.location.startswith("/")
        place = Path(table.location) if is_on_disk else Home(Path(self.home)).staging(table.name)
        return place / "data" / self.run_id

    def chunk(self, chunk_id: str) -> Chunk:
        """One chunk by its id.

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

        The summary comes first: whoever finds a plan finds its summary.
        """
        self.summary.write(self.folder.summary)
        content = self._content() | {"run_id": self.run_id, "plan_hash": self.plan_hash}
        write_text(self.folder.plan, json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n")
        return self.folder.plan

    @classmethod
    def read(cls, path: Path) -> Self:
        """The plan in a file.

        Raises:
            LedgerError: when there is no such file.
            PlanError: when another version wrote it, or its content does not match its hash.
        """
        content = load_json(path, "plan")
        recorded = content.pop("plan_hash", None)
        content.pop("run_id", None)
        if content.get("plan_version") != PLAN_VERSION:
            found = content.get("plan_version")
            msg = f"plan version must be {PLAN_VERSION}, got {found!r}: plan it anew ({path})"
            raise PlanError(msg)
        if _hash(content) != recorded:
            msg = f"plan was changed after it was made: hash {_hash(content)}, recorded {recorded} ({path})"
            raise PlanError(msg)
        return cls(**content | _typed(content))


def slug(trigger: str) -> str:
    """What asked for a run, as the beginning of the run's id; different ones may have the same."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", trigger)


def _hash(content: Mapping[str, Any]) -> str:
    """The same for a plan and for what its file holds."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_HASH_LENGTH]


def _typed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a plan that JSON holds as plain objects, as their types."""
    asked = content.get("local_days")
    return {
        "absent": _files(content.get("absent", {})),
        "ignored": _files(content.get("ignored", {})),
        "skipped": tuple(SkippedFile(**each) for each in content.get("skipped", ())),
        "damaged": tuple(InputFile(**each) for each in content.get("damaged", ())),
        "gone": _files({"gone": content.get("gone", {})})["gone"],
        "local_days": LocalDays(**asked) if asked else None,
        "mode": Mode(content["mode"]),
        "arrival_order": ArrivalOrder(content["arrival_order"]),
        "inputs": tuple(InputFile(*values) for values in from_columns(content["inputs"], InputFile)),
        "chunks": _unpacked(content["chunks"]),
        "tables": {
            suffix: PlannedTable(**each | {"columns": tuple(tuple(column) for column in each["columns"])})
            for suffix, each in content["tables"].items()
        },
    }


_INSTANTS = ("start_ms", "end_ms", "halo_end_ms")


def _packed(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Chunks by columns: equally long ones cost little more than their numbers of events."""
    found = to_columns(chunks, Chunk)
    found |= {name: to_deltas(found[name]) for name in _INSTANTS}
    found["files"] = [to_ranges(files) for files in found["files"]]
    return {name: run_lengths(values) for name, values in found.items()}


def _unpacked(packed: Mapping[str, Sequence[tuple[Any, int]]]) -> tuple[Chunk, ...]:
    found = {name: expand_run_lengths(values) for name, values in packed.items()}
    found |= {name: list(accumulate(found[name])) for name in _INSTANTS}
    found["files"] = [expand_ranges(text) for text in found["files"]]
    return tuple(Chunk(*values) for values in from_columns(found, Chunk))


def _files(content: Mapping[str, Any]) -> dict[str, FileList]:
    return {name: FileList(each.get("count", 0), tuple(each.get("first", ()))) for name, each in content.items()}
