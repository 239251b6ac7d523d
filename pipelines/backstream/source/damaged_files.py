"""Damaged files of a source: which of them a range needs, and which it does without."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.aggregates import source_columns
from backstream.definition.model import Definition
from backstream.errors import LedgerError, PlanError
from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.windows import Session
from backstream.runs.home import Home, load_json, write_json
from backstream.runs.input_files import SkippedFile
from backstream.runs.packing import from_columns
from backstream.runs.plan import InputFile, Mode
from backstream.source.files import DamagedFile, FileInspection, read_error_text


@dataclass(frozen=True, slots=True)
class ReadableInputs:
    """The files that a range may read.

    `skipped` ones are left out as the definition says. `damaged` ones are out of the range, by the bounds that an
    earlier plan knew; should a session reach into them after all, the job says so.
    """

    inputs: tuple[InputFile, ...]
    skipped: tuple[SkippedFile, ...] = ()
    damaged: tuple[InputFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a run is about: the event times that it reads, and how."""

    definition: Definition
    mode: Mode
    reach: Interval
    where: str

    @property
    def is_every_file_needed(self) -> bool:
        """Whether files that hold no event of the range decide about it, too."""
        return self.mode is Mode.REPLAY and self.definition.watermark.strategy is not StrategyKind.NONE

    @property
    def is_skipping(self) -> bool:
        """Whether damaged files are left out."""
        return self.definition.source.corrupt_files == "skip"

    def needs_file(self, file: InputFile) -> bool:
        """Return whether the run may read a file."""
        is_anywhere = isinstance(self.definition.window.spec(), Session) and self.is_skipping
        return is_anywhere or self.is_every_file_needed or file.may_hold(self.reach)


def split_damaged_files(source: FileInspection, asked: ReadRequest, home: Home) -> ReadableInputs:
    """Return the files that a run may read, without those that are damaged.

    Where damaged files are skipped, the columns that the definition names are read of each file that the run
    needs, once: a file may be damaged behind a sound footer.

    Raises:
        PlanError: when the run needs a damaged file and the definition does not say to skip it.
    """
    bounds = _known_before(home, asked.definition.name, {file.path for file in source.damaged})
    described = [(file, bounds.get(file.path)) for file in source.damaged]
    needed = [(file, known) for file, known in described if known is None or asked.needs_file(known)]
    if needed and not asked.is_skipping:
        raise _refusal(needed, asked)
    skipped = [SkippedFile(file.path, file.size_bytes, file.modified_ms, file.reason) for file, _ in needed]
    outside = tuple(known for _, known in described if known is not None and not asked.needs_file(known))
    inputs = source.inputs
    if asked.is_skipping:
        broken = {each.path: each for each in _broken(inputs, asked, home)}
        skipped += broken.values()
        inputs = tuple(file for file in inputs if file.path not in broken)
        if skipped and not inputs:
            msg = f"no input file is left: all {len(skipped)} are damaged ({asked.where})\n  {skipped[0]}"
            raise PlanError(msg)
    return ReadableInputs(inputs, tuple(sorted(skipped, key=lambda each: each.path)), outside)


def require_no_damage(damaged: Sequence[DamagedFile], where: str) -> None:
    """Check that no file is damaged.

    Raises:
        PlanError: naming the first that is, and how many there are.
    """
    if damaged:
        raise _unreadable(damaged, "which is needed", where)


def _refusal(needed: Sequence[tuple[DamagedFile, InputFile | None]], asked: ReadRequest) -> PlanError:
    known = needed[0][1]
    if known is None or known.min_event_ms is None or known.max_event_ms is None:
        because = "which may hold any event, so each range needs it"
    elif known.may_hold(asked.reach):
        first, last = instant_text(known.min_event_ms), instant_text(known.max_event_ms)
        because = f"which this range needs: it held events from {first} to {last}"
    else:
        because = "which every replay needs: watermarks rest on all that arrived"
    return _unreadable([file for file, _ in needed], because, asked.where)


def _unreadable(damaged: Sequence[DamagedFile], because: str, where: str) -> PlanError:
    first = damaged[0]
    more = f"\n  and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    return PlanError(
        f"cannot read input file {first.path}, {because}: {first.reason} ({where}){more}\n\n"
        'hint: put it back, move it away, or set source.corrupt_files = "skip"'
    )


def _known_before(home: Home, dataset: str, paths: Collection[str]) -> dict[str, InputFile]:
    """What the newest plan that read each of these files knew of it; nothing of those that none has read."""
    found: dict[str, InputFile] = {}
    if not paths:
        return found
    plans = (home.path / "runs" / dataset).glob("*/plan.json")
    for plan in sorted(plans, key=lambda each: each.stat().st_mtime_ns, reverse=True):
        for file in _inputs_of(plan):
            if file.path in paths and file.rows:
                found.setdefault(file.path, file)
        if len(found) == len(paths):
            break
    return found


def _inputs_of(plan: Path) -> Iterator[InputFile]:
    try:
        content = load_json(plan, "plan")
        yield from (InputFile(*values) for values in from_columns(content["inputs"], InputFile))
        yield from (InputFile(**each) for each in content.get("damaged", ()))
    except (LedgerError, TypeError, KeyError):  # written by another version
        return


def _broken(inputs: Sequence[InputFile], asked: ReadRequest, home: Home) -> list[SkippedFile]:
    """The files that a run needs and whose pages are damaged."""
    columns = source_columns(asked.definition)
    place = _place(home, asked.definition.name, columns)
    verified = _verified(place)
    fresh = [file for file in inputs if file.rows and asked.needs_file(file) and _identity(file) not in verified]
    broken = [damage for file in fresh if (damage := _damage(file, columns))]
    bad = {each.path for each in broken}
    if sound := {_identity(file) for file in fresh if file.path not in bad}:
        # Two plans at once may each lose what the other has found: it is read again then.
        write_json(place, {"verified": sorted([*verified, *sound])})
    return broken


def _damage(file: InputFile, columns: Iterable[str]) -> SkippedFile | None:
    """What is wrong with the pages of a file; None: all that is asked for can be read."""
    try:
        opened = pq.ParquetFile(file.path, page_checksum_verification=True)
        names = [name for name in columns if name in opened.schema_arrow.names]
        for number in range(opened.num_row_groups):
            opened.read_row_group(number, columns=names)
    except (pa.ArrowException, OSError) as error:
        return SkippedFile(file.path, file.size_bytes, file.modified_ms, read_error_text(error), file.rows)
    return None


def _place(home: Home, dataset: str, columns: Iterable[str]) -> Path:
    digest = hashlib.sha256(json.dumps(sorted(columns)).encode()).hexdigest()[:12]
    return home.path / "arrivals" / dataset / f"verified-{digest}.json"


def _verified(place: Path) -> set[tuple[str, int, int]]:
    if not place.exists():
        return set()
    return {(path, size, modified) for path, size, modified in load_json(place, "verified files")["verified"]}


def _identity(file: InputFile) -> tuple[str, int, int]:
    return file.path, file.size_bytes, file.modified_ms
