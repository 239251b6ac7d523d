"""Group chunks that run together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import ContractError
from backstream.eventtime.emission import Emission
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.runs.plan import Chunk, InputFile, Mode, Plan
from backstream.storage.files import file_uri
from backstream.watermarks.cache import WatermarkCache


@dataclass(frozen=True)
class ChunkGroup:
    """Adjacent chunks of a plan that run as one job.

    All but the last have the same length.
    """

    plan: Plan
    chunks: Sequence[Chunk]
    definition: Definition
    watermarks: WatermarkCache = field(default_factory=WatermarkCache)
    """The watermarks that all chunks of a job share."""
    whole_stream: ChunkGroup | None = None
    """The chunks with all files of the stream, if these chunks read the records of some keys only."""

    @classmethod
    def from_plan(cls, plan: Plan, chunks: Sequence[Chunk]) -> Self:
        """Return a group of these chunks, with the definition of their plan."""
        return cls(plan, chunks, parse_definition(plan.definition, f"plan {plan.run_id}"))

    @property
    def stream(self) -> ChunkGroup:
        """The chunks whose files make the watermarks."""
        return self.whole_stream or self

    @property
    def interval(self) -> Interval:
        """The interval of the starts of the windows that the chunks own."""
        return Interval(self.chunks[0].start_ms, self.chunks[-1].end_ms)

    @property
    def halo_end_ms(self) -> int:
        """The end of the halo of the last chunk."""
        return max(chunk.halo_end_ms for chunk in self.chunks)

    @property
    def expected_events(self) -> int:
        """The estimated number of events of all chunks."""
        return sum(chunk.expected_events for chunk in self.chunks)

    @property
    def paths(self) -> list[str]:
        """The files that the chunks read according to the plan."""
        numbers = sorted({number for chunk in self.chunks for number in chunk.files})
        return [self.plan.inputs[number].path for number in numbers]

    def list_input_files(self, interval: Interval) -> list[InputFile]:
        """Return the files that the chunks read for an interval of event time.

        Raises:
            ContractError: when a damaged file may have an event of the interval.
        """
        require_undamaged(self.plan.damaged, interval)
        paths = {*self.paths}
        return [file for file in self.plan.inputs if file.path in paths or file.may_hold(interval)]

    @cached_property
    def owned_files(self) -> Mapping[str, int]:
        """The files whose unreadable records these chunks own, and the number of the owning chunk.

        The first chunk of the plan that reads a file owns its unreadable records.
        """
        first_chunks: dict[int, str] = {}
        for chunk in self.plan.chunks:
            for file in chunk.files:
                first_chunks.setdefault(file, chunk.chunk_id)
        numbers = {chunk.chunk_id: number for number, chunk in enumerate(self.chunks)}
        return {
            file_uri(self.plan.inputs[file].path): numbers[chunk_id]
            for file, chunk_id in first_chunks.items()
            if chunk_id in numbers
        }

    @property
    def is_replay(self) -> bool:
        """True if the job reproduces arrival order."""
        return self.plan.mode is Mode.REPLAY

    @property
    def emission(self) -> Emission:
        """The emission model of the stream's watermarks."""
        return self.definition.emission

    @property
    def clock(self) -> SourceClock:
        """The clock of the stream's source."""
        return SourceClock(self.plan.clock_start_ms, self.emission.tick_ms, self.plan.clock_end_ms)


def require_undamaged(damaged: Sequence[InputFile], interval: Interval) -> None:
    """Check that no file that cannot be read may have an event of an interval.

    Args:
        damaged: files that can't be read, with the bounds of their last readable version.
        interval: the interval of event time.

    Raises:
        ContractError: naming the first of these files.
    """
    if needed := [file for file in damaged if file.may_hold(interval)]:
        msg = (
            f"cannot read input file {needed[0].path}: it is damaged, and may have an event of {interval}\n\n"
            'hint: restore the file, move it away, or set source.corrupt_files = "skip"; then create a new plan'
        )
        raise ContractError(msg)
