"""Define where and when a source emits watermarks: the strategy, the topology, and the emission model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backstream.errors import SpecError
from backstream.eventtime.union import UnionSource, assign_partitions, common_strategy
from backstream.eventtime.watermark_generators import (
    MAX_BASED,
    StrategyKind,
    WatermarkStrategy,
)


class Topology(StrEnum):
    """The place where the watermarks of partitions are merged."""

    SPLITS = "splits"
    """One source reads all partitions, with one generator each."""
    SUBTASKS = "subtasks"
    """Each partition has its own source; an input gate merges the watermarks of the sources."""
    OPERATOR = "operator"
    """One generator behind the source serves all partitions together."""


class Inputs(StrEnum):
    """The way in which several sources reach an operator."""

    UNION = "union"
    """As one stream, which ends at once."""
    GATE = "gate"
    """As one stream behind an input gate; the sources end one after the other. So joins DataStream's `coGroup`."""
    OPERATOR = "operator"
    """As inputs of one operator, which merges their watermarks. So join Flink SQL and `intervalJoin`."""


class EmissionModel(StrEnum):
    """The moments at which watermarks advance."""

    TICK = "periodic"
    """At each tick of the source's clock, as in Flink."""
    RECORD = "on_event"
    """After each record, so a record is never late by its own watermark. Idleness is still detected at ticks."""
    MICRO_BATCH = "micro_batch"
    """Between batches of arrivals, as in Spark Structured Streaming.

    A tick of the clock ends a batch. All partitions share one maximum; topology and idleness have no effect. Late
    events of a batch are classified by the maximum of the batches before the last one. The reason: Spark 4.3 fires
    windows by the watermark of the last batch, but classifies by the watermark with which that batch began.
    Structured Streaming differs in two points. Its first watermark is 1970-01-01, and it never sends +inf, so
    windows that are open at the end do not fire. Batches of `Trigger.AvailableNow` follow each other without the
    empty batches that a clock produces.
    """


_BY_TICK_KINDS = (*MAX_BASED, StrategyKind.TIME_LAG, StrategyKind.NONE)
_TIMER_RATIO = 5
"""The timer of Flink SQL's operator runs this many times in its shorter interval if both have about one length."""


@dataclass(frozen=True, slots=True)
class Emission:
    """A watermark strategy with the place and the moments of its emission.

    `drops_finished_splits`: a partition leaves the merge after its last record, as in a bounded source.
    `suppresses_final_when_idle`: a source that is idle at the end of its input never sends +inf, as in Flink 2.3.0
    (FLINK-40499).
    `sources`: the sources of a union in the order in which they tick. Each has its own strategy, and the topology.
    An input gate merges their watermarks.
    `inputs`: the operator that reads the sources, if each is an input of its own: a join.

    What the watermarks depend on decides how they are computed:

        =============== =====================================================================================
        `is_monotone`   a later event time never lowers a watermark; idleness depends on arrivals only
        `is_by_tick`    of a partition's records between two ticks, only the greatest event time has an effect
        `is_mergeable`  these maxima are all; NumPy merges them for all partitions (`watermarks.tick_maxima`)
        `is_in_index`   the arrival index has all that decides when a window fires: no event is read
        `is_resumable`  both: the index replaces the past by one number per partition
        `is_minimum`    the watermark is the minimum over all partitions of their maxima less a delay
        =============== =====================================================================================
    """

    strategy: WatermarkStrategy
    topology: Topology = Topology.SPLITS
    drops_finished_splits: bool = False
    suppresses_final_when_idle: bool = False
    model: EmissionModel = EmissionModel.TICK
    sources: tuple[UnionSource, ...] = ()
    inputs: Inputs = Inputs.UNION

    def __post_init__(self) -> None:
        if self.model is not EmissionModel.TICK and self.strategy.kind not in MAX_BASED:
            kind = self.strategy.kind.value
            msg = f"emission model {self.model.value} needs monotonous or bounded watermarks, got {kind}"
            raise SpecError(msg)
        if self.is_assigner and self.model is not EmissionModel.TICK:
            msg = f"an operator of Flink SQL's plan emits watermarks at ticks, got {self.model.value}"
            raise SpecError(msg)

    @classmethod
    def from_sources(
        cls,
        sources: Sequence[UnionSource],
        topology: Topology = Topology.SPLITS,
        *,
        drops_finished_splits: bool = False,
    ) -> Emission:
        """Return the emission of a union.

        Raises:
            SpecError: when the sources have different intervals, or their finished partitions leave the merge.
        """
        if drops_finished_splits:
            # Flink's gate has another rule for a source that has ended, and no recording of Flink shows it.
            msg = "finished partitions of several sources must hold the watermark, got `release`"
            raise SpecError(msg)
        kinds = {source.strategy.kind for source in sources}
        if topology is Topology.OPERATOR and StrategyKind.FLINK_SQL in kinds:
            # The operators would have timers with intervals of their own, and no recording of Flink shows them.
            msg = "watermarks that operators of Flink SQL's plan make are not possible with several sources"
            raise SpecError(msg)
        return cls(common_strategy(sources), topology, sources=tuple(sources))

    def with_partitions(self, partitions: Sequence[str]) -> Emission:
        """Return the same emission, with the numbers of the partitions of each source of a union.

        Raises:
            SpecError: when a partition belongs to no source.
        """
        return replace(self, sources=assign_partitions(self.sources, partitions)) if self.sources else self

    @property
    def is_assigner(self) -> bool:
        """Return whether an operator of Flink SQL's plan makes the watermarks, by rules of its own."""
        return self.strategy.kind is StrategyKind.FLINK_SQL and self.topology is Topology.OPERATOR

    @property
    def tick_ms(self) -> int:
        """Return the interval of the clock's ticks, 0 without ticks.

        It is the interval of emissions. Only Flink SQL's operator has one timer for them and for idleness.
        """
        interval_ms, timeout_ms = self.strategy.interval_ms, self.strategy.idle_timeout_ms
        if not (self.is_assigner and interval_ms and timeout_ms):
            return interval_ms
        shorter_ms, longer_ms = sorted((interval_ms, timeout_ms))
        return shorter_ms if _TIMER_RATIO * shorter_ms < longer_ms else max(shorter_ms // _TIMER_RATIO, 1)

    @property
    def ticks_per_emission(self) -> int:
        """Return the number of ticks from one emission to the next."""
        return -(-self.strategy.interval_ms // self.tick_ms) if self.tick_ms else 1

    @property
    def emits_at_raises(self) -> bool:
        """Return whether a record that raises the greatest event time can move the watermark at once."""
        return self.model is EmissionModel.RECORD or self.is_assigner

    @property
    def is_minimum(self) -> bool:
        """Return whether the watermark is the minimum over all partitions, each a maximum less a delay.

        Without idleness, each input of a gate takes part in its minimum at all times, and so does each partition
        in the minimum of its source. The minimum of minima is the minimum over all partitions.
        """
        has_idleness = any(strategy.idle_timeout_ms for strategy in self.strategies)
        return self.topology is not Topology.OPERATOR and self._are_maxima and not has_idleness

    @property
    def is_monotone(self) -> bool:
        """Return whether later event times never lower a watermark, and idleness depends on arrivals only.

        Behind a gate, the idleness of an input depends on its watermarks.
        """
        has_gate = bool(self.sources) or self.topology is Topology.SUBTASKS
        has_idleness = any(strategy.idle_timeout_ms for strategy in self.strategies)
        return self._are_maxima and not (has_gate and has_idleness)

    @property
    def is_by_tick(self) -> bool:
        """Return whether of the records of a partition between two ticks only the greatest event time matters."""
        return not self.emits_at_raises and all(strategy.kind in _BY_TICK_KINDS for strategy in self.strategies)

    @property
    def is_mergeable(self) -> bool:
        """Return whether NumPy can merge the greatest event times per partition and tick into the watermarks."""
        if self.sources:
            return self.is_minimum and self.topology is Topology.SPLITS
        is_plain = not (self.drops_finished_splits or self.suppresses_final_when_idle)
        is_ticked = self.model is EmissionModel.TICK and self.topology is Topology.SPLITS
        return is_plain and is_ticked and self._are_maxima

    @property
    def is_in_index(self) -> bool:
        """Return whether the arrival index contains all data that these watermarks depend on."""
        has_ticks = self.strategy.interval_ms > 0
        if self.sources:
            # Event buckets are cut for one delay. With the same delay in all sources, the union is one minimum.
            delays_ms = {source.strategy.bound_ms for source in self.sources}
            return self.is_minimum and len(delays_ms) == 1 and has_ticks
        is_plain = not self.drops_finished_splits and self.model is EmissionModel.TICK and has_ticks
        # Behind a gate, a partition that resumes does not take part until it has caught up. The index lacks this
        # time.
        has_simple_merge = self.topology is not Topology.SUBTASKS or not self.strategy.idle_timeout_ms
        return is_plain and has_simple_merge and self._are_maxima

    @property
    def is_resumable(self) -> bool:
        """Return whether the past of the watermarks is a maximum per partition that the arrival index has."""
        return self.is_mergeable and self.is_in_index

    @property
    def has_end(self) -> bool:
        """Return whether the stream ends with +inf; a job of Structured Streaming never ends."""
        return self.strategy.kind is not StrategyKind.STRUCTURED_STREAMING

    @property
    def _are_maxima(self) -> bool:
        return not self.is_assigner and all(strategy.kind in MAX_BASED for strategy in self.strategies)

    @property
    def source_names(self) -> list[str]:
        """The names of the sources of a union."""
        return [source.name for source in self.sources]

    @property
    def strategies(self) -> tuple[WatermarkStrategy, ...]:
        """The strategies of all sources."""
        return tuple(source.strategy for source in self.sources) or (self.strategy,)

    @property
    def delay_ms(self) -> int:
        """Distance of the watermark from the maximum event time, or from the clock."""
        return self.strategy.bound_ms

    def with_custom_generator(self) -> Emission:
        """Return the same emission with the kind of a custom generator."""
        return replace(self, strategy=replace(self.strategy, kind=StrategyKind.CUSTOM))
