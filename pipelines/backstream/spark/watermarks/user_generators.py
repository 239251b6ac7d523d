"""A user's own watermark generator: each partition is played where its records lie, and what it said comes back.

A generator is a state machine over its partition's records and ticks, so nothing shorter than playing it is exact.
Arrival, sequence, event time and marker travel to one Arrow function per partition; with the topology `operator`
to one for all. Back come the outputs that rise or end idleness, and one row per block with data. The driver merges
the partitions by the reference's own rules, with generators that repeat those outputs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from backstream.errors import BackstreamError, PlanError, SpecError
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import (
    CheckedGenerator,
    StrategyKind,
    WatermarkGenerator,
    generator_factory,
)
from backstream.eventtime.watermarks import Emission, Topology, idle_emit_ticks, run_source
from backstream.spark.schemas import ARRIVAL_ORDER, int64_literal
from backstream.spark.session import ship_package
from backstream.spark.watermarks.compress import (
    ClockColumns,
    compress_events,
    rows_in_arrival_order,
    timeline_of_maxima,
    to_timeline,
)
from backstream.spark.watermarks.timeline import WatermarkTimeline

_TOLD = pa.schema(
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
"""What a generator said (`marker_ms`, at a record or at a `tick`), a block's last record, or what went wrong."""
_ALL = "all"
_PIECE = 10_000


def timeline_of_events(
    events: DataFrame,
    emission: Emission,
    clock: SourceClock,
    expected: Iterable[str] = (),
    new_generator: Callable[[], WatermarkGenerator] | None = None,
) -> WatermarkTimeline:
    """The watermarks of a stream, whatever its strategy and emission model. Runs a job.

    Args:
        events: normalised events, with `marker_ms` where markers exist.
        emission: how watermarks come about.
        clock: when the source ticks.
        expected: source partitions that the source reads even if they never delivered.
        new_generator: makes a user's own generators instead of the strategy's. It travels to the workers, so its
            module must be importable there.

    Raises:
        SpecError: when a user's generator cannot be made, or fails at a record or tick.
        PlanError: when punctuated watermarks lack their markers.
    """
    if new_generator is None and emission.strategy.kind is StrategyKind.CUSTOM:
        new_generator = generator_factory(emission.strategy)
        ship_package(events.sparkSession.sparkContext, emission.strategy.generator)
    if emission.strategy.kind is StrategyKind.PUNCTUATED and "marker_ms" not in events.columns:
        msg = "punctuated watermarks need the column `marker_ms`"
        raise PlanError(msg)
    if new_generator is None:
        cells = compress_events(events, ClockColumns.from_clock(clock), (), emission).toArrow()
        return timeline_of_maxima(cells, emission, clock, list_partitions(expected, cells))
    emission = emission.with_custom_generator()
    told = _told(events, emission, clock, new_generator)
    return _merged(told, emission, clock, list_partitions(expected, told), new_generator)


def list_partitions(expected: Iterable[str], cells: pa.Table) -> list[str]:
    """Those that a source reads, delivered or not: a merge asks all of them."""
    return sorted({*expected, *cells["source_partition"].unique().to_pylist()})


def _told(
    events: DataFrame, emission: Emission, clock: SourceClock, new_generator: Callable[[], WatermarkGenerator]
) -> pa.Table:
    """What the generators said where the records lie.

    Raises:
        SpecError: what one of them did wrong.
    """
    idle_emit_ticks(CheckedGenerator(new_generator()), clock, emission)  # refuses what would take for ever

    def play(table: pa.Table) -> pa.Table:
        try:
            names = sorted(set(table["source_partition"].to_pylist()))
            rows = list(_Partition.from_names(new_generator, emission, clock, names).play(table))
        except BackstreamError as error:
            rows = [{"error": str(error)}]
        return pa.Table.from_pylist(rows, _TOLD)

    marker = F.col("marker_ms") if "marker_ms" in events.columns else int64_literal(None)
    travelling = events.select(*ARRIVAL_ORDER, "event_time_ms", marker.alias("marker_ms"))
    by = F.lit(_ALL) if emission.topology is Topology.OPERATOR else F.col("source_partition")
    told = travelling.groupBy(by.alias("read_by")).applyInArrow(play, from_arrow_schema(_TOLD)).toArrow()
    errors = told["error"].drop_null().to_pylist()
    if errors:
        raise SpecError(min(errors))
    return told


@dataclass(slots=True)
class _Partition:
    """One generator with its idleness, as `core.merging` has it for a partition on its own."""

    generator: CheckedGenerator
    emission: Emission
    clock: SourceClock
    names: Sequence[str]
    watermark_ms: int = MIN_MS
    is_idle: bool = False
    ticked: int = 0
    last_data_tick: int = 0

    @classmethod
    def from_names(
        cls,
        new_generator: Callable[[], WatermarkGenerator],
        emission: Emission,
        clock: SourceClock,
        names: Sequence[str] = (),
    ) -> _Partition:
        """A new generator for the partitions of these names."""
        return cls(CheckedGenerator(new_generator(), names), emission, clock, names)

    def play(self, table: pa.Table) -> Iterator[dict[str, Any]]:
        """All records in arrival order, and all ticks between and after them."""
        ordered = table.sort_by([(name, "ascending") for name in ARRIVAL_ORDER])
        numbers = {name: number for number, name in enumerate(self.names)}
        last: dict[str, dict[str, Any]] = {}
        # Piecewise, since a record takes ten times as much room as a Python object.
        for row in chain.from_iterable(batch.to_pylist() for batch in ordered.to_batches(_PIECE)):
            block = self.clock.ticks_before(row["arrival_time_ms"])
            yield from self._tick_until(block)
            row["block"], self.last_data_tick = block, block + 1
            name = row["source_partition"]
            record = Record(
                row["arrival_time_ms"], numbers[name], "", row["event_time_ms"], marker=row["marker_ms"]
            )
            if (before := last.get(name)) and before["block"] != block:
                yield before
            last[name] = {**row, "marker_ms": None}
            if (said_ms := self._worth_telling(self.generator.on_event(record))) is not None:
                yield {**row, "marker_ms": said_ms}
        yield from last.values()
        yield from self._tick_until(self.clock.last_tick)

    def ticks_alone(self) -> dict[int, int]:
        """What a generator says that never sees a record: tick to watermark."""
        return {row["tick"]: row["marker_ms"] for row in self._tick_until(self.clock.last_tick)}

    def _tick_until(self, until: int) -> Iterator[dict[str, Any]]:
        if until <= self.ticked:
            return
        first, self.ticked = self.ticked + 1, until
        onset = self._idle_from()
        last = until if onset is None else min(until, onset - 1)
        # One tick tells what a steady generator has to say since its last record.
        for tick in range(first, min(last, first) + 1 if self.generator.is_steady else last + 1):
            said_ms = self._worth_telling(self.generator.on_periodic_emit(self.clock.tick_ms(tick)))
            if said_ms is not None:
                yield {
                    "source_partition": self.names[0] if self.names else None,
                    "tick": tick,
                    "marker_ms": said_ms,
                }
        self.is_idle = self.is_idle or last < until

    def _idle_from(self) -> int | None:
        timeout_ms = self.emission.strategy.idle_timeout_ms
        if not timeout_ms or not self.clock.interval_ms:
            return None
        return self.last_data_tick + timeout_ms // self.clock.interval_ms + 2

    def _worth_telling(self, said_ms: int | None) -> int | None:
        """A watermark that rises or ends idleness; any other has no effect."""
        if said_ms is None or (said_ms <= self.watermark_ms and not self.is_idle):
            return None
        self.watermark_ms, self.is_idle = max(self.watermark_ms, said_ms), False
        return said_ms


@dataclass(slots=True)
class _Repeating:
    """Says what a generator said elsewhere: at a record what its marker says, at a tick what is noted."""

    said_ms: Mapping[int, int]

    def on_event(self, record: Record) -> int | None:
        """The row's own output."""
        return None if record.marker is None else int(record.marker)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """The output noted for that time."""
        return self.said_ms.get(now_ms)


@dataclass(slots=True)
class _Notes:
    """Outputs at ticks, by partition number; None: what a generator says that never sees a record."""

    clock: SourceClock
    by_partition: dict[int | None, dict[int, int]] = field(default_factory=dict)

    def generator(self, partition: int | None) -> WatermarkGenerator:
        """One that repeats the outputs of a partition."""
        noted = self.by_partition.get(partition, self.by_partition[None])
        return _Repeating({self.clock.tick_ms(tick): said_ms for tick, said_ms in noted.items()})

    def ticks(self) -> Callable[[int, int], Iterable[int]]:
        """The ticks at which an output can change something, and those after: idleness is announced there."""
        noted = {tick for outputs in self.by_partition.values() for tick in outputs}
        ticks = sorted(noted | {tick + 1 for tick in noted})
        return lambda first, last: ticks[bisect_left(ticks, first) : bisect_right(ticks, last)]


def _merged(
    told: pa.Table,
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[str],
    new_generator: Callable[[], WatermarkGenerator],
) -> WatermarkTimeline:
    is_tick = pa.compute.is_valid(told["tick"])
    ticks, cells = told.filter(is_tick), told.filter(pa.compute.invert(is_tick))
    notes = _Notes(clock)
    if emission.topology is Topology.OPERATOR:
        read = {tick["tick"]: tick["marker_ms"] for tick in ticks.to_pylist()}
        notes.by_partition[None] = read if told.num_rows else _alone(new_generator, emission, clock)
    else:
        notes.by_partition[None] = _alone(new_generator, emission, clock)
        delivered = set(cells["source_partition"].to_pylist())
        numbers = {name: number for number, name in enumerate(partitions) if name in delivered}
        notes.by_partition |= {number: {} for number in numbers.values()}
        for tick in ticks.to_pylist():
            notes.by_partition[numbers[tick["source_partition"]]][tick["tick"]] = tick["marker_ms"]
    rows, records = rows_in_arrival_order(cells, partitions)
    everything = run_source(records, emission, clock, range(len(partitions)), notes.generator, notes.ticks())
    return to_timeline(everything, rows, clock, np.unique(cells["block"].to_numpy()))


def _alone(
    new_generator: Callable[[], WatermarkGenerator], emission: Emission, clock: SourceClock
) -> dict[int, int]:
    return _Partition.from_names(new_generator, emission, clock).ticks_alone()
