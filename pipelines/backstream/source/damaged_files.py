"""Separate the damaged files that a range needs from those that it does not need."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.columns import source_columns
from backstream.definition.model import Definition
from backstream.errors import LedgerError, PlanError
from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.windows import Session
from backstream.runs.home import Home
from backstream.runs.input_files import SkippedFile
from backstream.runs.packing import from_columns
from backstream.runs.plan import InputFile, Mode
from backstream.runs.store import Runs
from backstream.source.files import DamagedFile, FileInspection, read_error_text
from backstream.storage.files import load_json, write_json
from backstream.storage.stores import Stores, explain_reading


@dataclass(frozen=True, slots=True)
class ReadableInputs:
    """The files that a range may read.

    `skipped` files are left out, as the definition requires. `damaged` files are outside the range, according to
    the bounds in an earlier plan. If a session extends into them, the job fails with an error.
    """

    inputs: tuple[InputFile, ...]
    skipped: tuple[SkippedFile, ...] = ()
    damaged: tuple[InputFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The event times that a run reads, with its definition and mode."""

    definition: Definition
    mode: Mode
    reach: Interval
    where: str

    @property
    def is_every_file_needed(self) -> bool:
        """Return whether files without events of the range also affect the result."""
        return self.mode is Mode.REPLAY and self.definition.emission.strategy.kind is not StrategyKind.NONE

    @property
    def is_skipping(self) -> bool:
        """Return whether damaged files are skipped."""
        return self.definition.source.corrupt_files == "skip"

    def needs_file(self, file: InputFile) -> bool:
        """Return whether the run may read a file."""
        is_anywhere = isinstance(self.definition.window.spec(), Session) and self.is_skipping
        return is_anywhere or self.is_every_file_needed or file.may_hold(self.reach)


def split_damaged_files(source: FileInspection, request: ReadRequest, home: Home) -> ReadableInputs:
    """Return the files that a run may read, without damaged ones.

    If damaged files are skipped, the named columns of each needed file are read once. A file with a valid footer
    may still be damaged.

    Raises:
        PlanError: when the run needs a damaged file and the definition does not skip it.
    """
    earlier_files = _find_earlier_inputs(home, request.definition.name, {file.path for file in source.damaged})
    described = [(file, earlier_files.get(file.path)) for file in source.damaged]
    needed = [(file, earlier) for file, earlier in described if earlier is None or request.needs_file(earlier)]
    if needed and not request.is_skipping:
        raise _needed_file_error(needed, request)
    skipped = [SkippedFile(file.path, file.size_bytes, file.modified_ms, file.reason) for file, _ in needed]
    outside = tuple(earlier for _, earlier in described if earlier is not None and not request.needs_file(earlier))
    inputs = source.inputs
    if request.is_skipping:
        broken = {file.path: file for file in _find_broken_pages(inputs, request, home)}
        skipped += broken.values()
        inputs = tuple(file for file in inputs if file.path not in broken)
        if skipped and not inputs:
            msg = f"no input file is left: all {len(skipped)} are damaged ({request.where})\n  {skipped[0]}"
            raise PlanError(msg)
    return ReadableInputs(inputs, tuple(sorted(skipped, key=lambda file: file.path)), outside)


def require_no_damage(damaged: Sequence[DamagedFile], where: str) -> None:
    """Check that no file is damaged.

    Raises:
        PlanError: with the first damaged file and their number.
    """
    if damaged:
        raise _unreadable_error(damaged, "which is needed", where)


def _needed_file_error(needed: Sequence[tuple[DamagedFile, InputFile | None]], request: ReadRequest) -> PlanError:
    earlier = needed[0][1]
    if earlier is None or earlier.min_event_ms is None or earlier.max_event_ms is None:
        reason = "which may contain any event, so every range needs it"
    elif earlier.may_hold(request.reach):
        first, last = instant_text(earlier.min_event_ms), instant_text(earlier.max_event_ms)
        reason = f"which this range needs: it contained events from {first} to {last}"
    else:
        reason = "which every replay needs: watermarks depend on all arrivals"
    return _unreadable_error([file for file, _ in needed], reason, request.where)


def _unreadable_error(damaged: Sequence[DamagedFile], reason: str, where: str) -> PlanError:
    first = damaged[0]
    more = f"\n  and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    return PlanError(
        f"cannot read input file {first.path}, {reason}: {first.reason} ({where}){more}\n\n"
        'hint: restore the file, move it away, or set source.corrupt_files = "skip"'
    )


def _find_earlier_inputs(home: Home, dataset: str, paths: Collection[str]) -> dict[str, InputFile]:
    """Return these files as the newest plan with each of them described it; files without a plan are left out."""
    inputs: dict[str, InputFile] = {}
    if not paths:
        return inputs
    for folder in Runs(home).of_dataset(dataset):
        for file in _load_inputs(folder.plan):
            if file.path in paths and file.rows:
                inputs.setdefault(file.path, file)
        if len(inputs) == len(paths):
            break
    return inputs


def _load_inputs(plan: Path) -> Iterator[InputFile]:
    try:
        content = load_json(plan, "plan")
        yield from (InputFile(*values) for values in from_columns(content["inputs"], InputFile))
        yield from (InputFile(**file) for file in content.get("damaged", ()))
    except (LedgerError, TypeError, KeyError):  # written by another version
        return


def _find_broken_pages(inputs: Sequence[InputFile], request: ReadRequest, home: Home) -> list[SkippedFile]:
    """Return the files that a run needs and whose pages are damaged; verify each file once."""
    columns = source_columns(request.definition)
    path = _verified_path(home, request.definition.name, columns)
    verified = _load_verified(path)
    unverified = [
        file for file in inputs if file.rows and request.needs_file(file) and _identity(file) not in verified
    ]
    read = None if request.definition.reads_all_columns else columns
    broken = [damage for file in unverified if (damage := _find_damage(file, read))]
    broken_paths = {file.path for file in broken}
    if sound := {_identity(file) for file in unverified if file.path not in broken_paths}:
        # Of two concurrent plans, one may overwrite the entries of the other. Those files are then verified again.
        write_json(path, {"verified": sorted([*verified, *sound])})
    return broken


def _find_damage(file: InputFile, columns: Iterable[str] | None) -> SkippedFile | None:
    """Read these columns of a file, by default all, and return its damage; None: the file is sound."""
    try:
        with explain_reading(file.path):
            source = Stores.from_environment().parquet_source(file.path)
            parquet = pq.ParquetFile(source, page_checksum_verification=True)
            names = None if columns is None else [name for name in columns if name in parquet.schema_arrow.names]
            for number in range(parquet.num_row_groups):
                parquet.read_row_group(number, columns=names)
    except (pa.ArrowException, OSError) as error:
        return SkippedFile(file.path, file.size_bytes, file.modified_ms, read_error_text(error), file.rows)
    return None


def _verified_path(home: Home, dataset: str, columns: Iterable[str]) -> Path:
    digest = hashlib.sha256(json.dumps(sorted(columns)).encode()).hexdigest()[:12]
    return home.path / "arrivals" / dataset / f"verified-{digest}.json"


def _load_verified(path: Path) -> set[tuple[str, int, int]]:
    if not path.exists():
        return set()
    return {(file, size, modified) for file, size, modified in load_json(path, "verified files")["verified"]}


def _identity(file: InputFile) -> tuple[str, int, int]:
    return file.path, file.size_bytes, file.modified_ms
