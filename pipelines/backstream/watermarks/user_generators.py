"""Run custom watermark generators over all events of a stream, and merge the watermarks they emit.

A generator is a state machine over the records and ticks of its partition, so exact results need all of them. An
engine gives the records of one partition to `run_generators`, or those of all partitions with the topology
`operator`. It returns the emitted watermarks that rise or end idleness, and one row per block with data.
`merge_outputs` joins the partitions by the rules of the reference, with generators that repeat the emitted
watermarks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.emission import Emission, Topology
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import CheckedGenerator, WatermarkGenerator
from backstream.eventtime.watermark_sources import idle_emit_ticks, run_source
from backstream.watermarks.cells import rows_in_arrival_order, to_timeline
from backstream.watermarks.timeline import WatermarkTimeline

_ARRIVAL_ORDER = ("arrival_time_ms", "arrival_seq", "source_partition")

OUTPUT = pa.schema(
    [
        ("source_partition", pa.string()),
        ("block", pa.int64()),
        ("event_time_ms", pa.int64()),
        ("arrival_time_ms", pa.int64()),
        ("arrival_seq", pa.int64()),
        ("marker_ms", pa.int64()),
        ("tick", pa.int64()),
        ("error", pa.string()),
    ]
)
"""An emitted watermark (`marker_ms`, at a record or at a `tick`), the last record of a block, or an error."""
_BATCH_ROWS = 10_000


NewGenerator = Callable[[], WatermarkGenerator]


def require_end(new_generator: NewGenerator, emission: Emission, clock: SourceClock) -> None:
    """Check that the generators end without records.

    Raises:
        SpecError: when a run would be endless.
    """
    idle_emit_ticks(CheckedGenerator(new_generator()), clock, emission)


def run_generators(
    table: pa.Table, new_generator: NewGenerator, emission: Emission, clock: SourceClock
) -> pa.Table:
    """Return the output of one generator for the records of its partitions, or the row of its error.

    Args:
        table: the columns of the arrival position, `event_time_ms`, and `marker_ms`, in any order.
        new_generator: creates the generator.
        emission: the emission.
        clock: the clock of the source.
    """
    try:
        names = sorted(set(table["source_partition"].to_pylist()))
        rows = list(_Partition.from_names(new_generator, emission, clock, names).run(table))
    except BackstreamError as error:
        rows = [{"error": str(error)}]
    return pa.Table.from_pylist(rows, OUTPUT)


def require_no_error(outputs: pa.Table) -> None:
    """Check that no generator has failed.

    Raises:
        SpecError: the error of one generator.
    """
    if errors := outputs["error"].drop_null().to_pylist():
        raise SpecError(min(errors))


@dataclass(slots=True)
class _Partition:
    """One generator and its idleness, as `eventtime.watermark_merging` has it for a single partition."""

    generator: CheckedGenerator
    emission: Emission
    clock: SourceClock
    names: Sequence[str]
    watermark_ms: int = MIN_MS
    is_idle: bool = False
    last_tick: int = 0
    last_data_tick: int = 0

    @classmethod
    def from_names(
        cls,
        new_generator: NewGenerator,
        emission: Emission,
        clock: SourceClock,
        names: Sequence[str] = (),
    ) -> _Partition:
        """Return a new generator for the partitions with these names."""
        return cls(CheckedGenerator(new_generator(), names), emission, clock, names)

    def run(self, table: pa.Table) -> Iterator[dict[str, Any]]:
        """Yield the output for all records in arrival order, and for all ticks between and after them."""
        ordered = table.sort_by([(name, "ascending") for name in _ARRIVAL_ORDER])
        numbers = {name: number for number, name in enumerate(self.names)}
        last_rows: dict[str, dict[str, Any]] = {}
        # In batches, since a record needs ten times as much memory as a Python object.
        for row in chain.from_iterable(batch.to_pylist() for batch in ordered.to_batches(_BATCH_ROWS)):
            block = self.clock.ticks_before(row["arrival_time_ms"])
            yield from self._run_ticks(block)
            row["block"], self.last_data_tick = block, block + 1
            name = row["source_partition"]
            record = Record(
                row["arrival_time_ms"], numbers[name], "", row["event_time_ms"], marker=row["marker_ms"]
            )
            if (before := last_rows.get(name)) and before["block"] != block:
                yield before
            last_rows[name] = {**row, "marker_ms": None}
            if (emitted_ms := self._effective_ms(self.generator.on_event(record))) is not None:
                yield {**row, "marker_ms": emitted_ms}
        yield from last_rows.values()
        yield from self._run_ticks(self.clock.last_tick)

    def ticks_alone(self) -> dict[int, int]:
        """Return the watermarks by tick of a generator that gets no records."""
        return {row["tick"]: row["marker_ms"] for row in self._run_ticks(self.clock.last_tick)}

    def _run_ticks(self, until: int) -> Iterator[dict[str, Any]]:
        if until <= self.last_tick:
            return
        first, self.last_tick = self.last_tick + 1, until
        idle_from = self._idle_from()
        last = until if idle_from is None else min(until, idle_from - 1)
        # A steady generator emits the same watermark at all ticks between two records, so one tick is enough.
        for tick in range(first, min(last, first) + 1 if self.generator.is_steady else last + 1):
            emitted_ms = self._effective_ms(self.generator.on_periodic_emit(self.clock.tick_ms(tick)))
            if emitted_ms is not None:
                yield {
                    "source_partition": self.names[0] if self.names else None,
                    "tick": tick,
                    "marker_ms": emitted_ms,
                }
        self.is_idle = self.is_idle or last < until

    def _idle_from(self) -> int | None:
        timeout_ms = self.emission.strategy.idle_timeout_ms
        if not timeout_ms or not self.clock.interval_ms:
            return None
        return self.last_data_tick + timeout_ms // self.clock.interval_ms + 2

    def _effective_ms(self, emitted_ms: int | None) -> int | None:
        """Return the watermark if it rises or ends idleness; any other has no effect."""
        if emitted_ms is None or (emitted_ms <= self.watermark_ms and not self.is_idle):
            return None
        self.watermark_ms, self.is_idle = max(self.watermark_ms, emitted_ms), False
        return emitted_ms


@dataclass(slots=True)
class _RepeatingGenerator:
    """A generator that repeats stored watermarks: from the marker of a record, and by time at ticks."""

    watermark_by_time_ms: Mapping[int, int]

    def on_event(self, record: Record) -> int | None:
        """Return the marker of the record."""
        return None if record.marker is None else int(record.marker)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Return the watermark stored for this time."""
        return self.watermark_by_time_ms.get(now_ms)


@dataclass(slots=True)
class _TickOutputs:
    """Watermarks emitted at ticks, by partition number; None has those of a generator without records."""

    clock: SourceClock
    by_partition: dict[int | None, dict[int, int]] = field(default_factory=dict)

    def generator(self, partition: int | None) -> WatermarkGenerator:
        """Return a generator that repeats the output of a partition."""
        outputs = self.by_partition.get(partition, self.by_partition[None])
        return _RepeatingGenerator({self.clock.tick_ms(tick): emitted_ms for tick, emitted_ms in outputs.items()})

    def ticks(self) -> Callable[[int, int], Iterable[int]]:
        """Return the lookup of ticks to run: ticks with output, and the next ones, which can announce idleness."""
        with_output = {tick for outputs in self.by_partition.values() for tick in outputs}
        ticks = sorted(with_output | {tick + 1 for tick in with_output})
        return lambda first, last: ticks[bisect_left(ticks, first) : bisect_right(ticks, last)]


def merge_outputs(
    outputs: pa.Table,
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[str],
    new_generator: NewGenerator,
) -> WatermarkTimeline:
    """Run the reference with generators that repeat these outputs."""
    is_tick = pa.compute.is_valid(outputs["tick"])
    ticks, cells = outputs.filter(is_tick), outputs.filter(pa.compute.invert(is_tick))
    tick_outputs = _TickOutputs(clock)
    if emission.topology is Topology.OPERATOR:
        by_tick = {tick["tick"]: tick["marker_ms"] for tick in ticks.to_pylist()}
        tick_outputs.by_partition[None] = (
            by_tick if outputs.num_rows else _run_without_records(new_generator, emission, clock)
        )
    else:
        tick_outputs.by_partition[None] = _run_without_records(new_generator, emission, clock)
        with_records = set(cells["source_partition"].to_pylist())
        numbers = {name: number for number, name in enumerate(partitions) if name in with_records}
        tick_outputs.by_partition |= {number: {} for number in numbers.values()}
        for tick in ticks.to_pylist():
            tick_outputs.by_partition[numbers[tick["source_partition"]]][tick["tick"]] = tick["marker_ms"]
    rows, records = rows_in_arrival_order(cells, partitions)
    watermarks = run_source(
        records, emission, clock, range(len(partitions)), tick_outputs.generator, tick_outputs.ticks()
    )
    return to_timeline(watermarks, rows, clock, np.unique(cells["block"].to_numpy()))


def _run_without_records(new_generator: NewGenerator, emission: Emission, clock: SourceClock) -> dict[int, int]:
    return _Partition.from_names(new_generator, emission, clock).ticks_alone()
