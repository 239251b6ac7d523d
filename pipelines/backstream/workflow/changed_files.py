"""Compare the current input files of a dataset with those that a run read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.stale_windows import ChangeKind
from backstream.runs.plan import InputFile
from backstream.source.time_columns import Longs
from backstream.workflow.affected_rows import Mask
from backstream.workflow.planned_inputs import PlanInputs, PlannedInputs, to_bits


@dataclass(frozen=True, slots=True)
class CurrentInputs:
    """The current input files as columns; an unknown bound is replaced by the widest value."""

    files: Sequence[InputFile]
    bits: int
    numbers: Longs
    has_rows: Mask
    first_event_ms: Longs
    last_event_ms: Longs
    first_arrival_ms: Longs

    @classmethod
    def from_files(cls, files: Sequence[InputFile], plans: PlannedInputs) -> Self:
        """Return the columns of these files, with the numbers that plans use for them."""
        numbers = plans.numbers(files)
        is_bounded = [file.min_event_ms is not None and file.max_event_ms is not None for file in files]
        bounds = (
            [file.min_event_ms if known else MIN_MS for file, known in zip(files, is_bounded, strict=True)],
            [file.max_event_ms if known else MAX_MS for file, known in zip(files, is_bounded, strict=True)],
            [MIN_MS if file.min_arrival_ms is None else file.min_arrival_ms for file in files],
        )
        columns = (np.array(values, np.int64) for values in (numbers, [file.rows for file in files], *bounds))
        number, rows, first_ms, last_ms, arrival_ms = columns
        return cls(files, to_bits(numbers), number, rows > 0, first_ms, last_ms, arrival_ms)

    def added_since(self, plan: PlanInputs) -> Mask:
        """Return a mask of the files that a plan does not list; the list includes skipped damaged files."""
        listed = plan.read_files | plan.skipped
        size = int(max(self.numbers.max(initial=0), listed.bit_length())) // 8 + 1
        bits = np.frombuffer(listed.to_bytes(size, "little"), np.uint8)
        is_added: Mask = np.unpackbits(bits, bitorder="little")[self.numbers] == 0
        return is_added

    def removed_since(self, plan: PlanInputs) -> int:
        """Return, as bits, the files that a plan lists and that the source does not have any more."""
        return plan.read_files & ~(self.bits & ~plan.skipped)

    def may_hold(self, reach: Interval | None) -> Mask:
        """Return a mask of the files that may hold events of an interval; None: any event."""
        if reach is None:
            return self.has_rows
        return self.has_rows & (self.first_event_ms < reach.end_ms) & (self.last_event_ms >= reach.start_ms)


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The added and removed files that may hold events of a run; a file that changed may be in both."""

    added: tuple[InputFile, ...]
    removed: tuple[InputFile, ...]
    changes: Mapping[str, ChangeKind]

    @classmethod
    def from_inputs(
        cls, inputs: CurrentInputs, is_added: Mask, removed: Sequence[InputFile], reach: Interval | None
    ) -> Self:
        """Return the changed files that may hold events of `reach`; None: any event."""
        added_near = tuple(inputs.files[at] for at in true_positions(is_added & inputs.may_hold(reach)))
        removed_near = tuple(file for file in removed if file.rows and (reach is None or file.may_hold(reach)))
        # A file that is in both lists has changed, even if only one of its versions is near.
        added_paths = {inputs.files[at].path for at in true_positions(is_added)} if removed else set()
        removed_paths = {file.path for file in removed}
        changes = {
            file.path: ChangeKind.CHANGED if file.path in removed_paths else ChangeKind.NEW for file in added_near
        }
        changes |= {
            file.path: ChangeKind.CHANGED if file.path in added_paths else ChangeKind.REMOVED
            for file in removed_near
        }
        return cls(added_near, removed_near, changes)


def true_positions(mask: Mask) -> list[int]:
    """Return the positions at which a mask is true."""
    positions: list[int] = np.flatnonzero(mask).tolist()
    return positions
