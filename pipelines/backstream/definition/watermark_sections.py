"""Define the sections `[watermark]`, `[source.watermark]`, and `[lateness]` of a definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from backstream.definition.values import Instant, NonNegativeDuration, Section, Sql, UserCodeName
from backstream.eventtime.emission import Emission, EmissionModel, Topology
from backstream.eventtime.instants import duration_text
from backstream.eventtime.watermark_generators import MAX_BASED, StrategyKind, WatermarkStrategy
from backstream.structured_streaming.late_records import LateBy, Undecided

_GENERATORS = [kind.value for kind in StrategyKind if kind is not StrategyKind.PER_SOURCE]


def _require_generator(value: object) -> object:
    if value not in _GENERATORS:
        choice = f"{', '.join(map(repr, _GENERATORS[:-1]))} or {_GENERATORS[-1]!r}"
        msg = f"must be {choice}, got {value!r}"
        raise ValueError(msg)
    return value


Paths = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""A path or an address, or a list of them."""
QuerySource = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
]
"""A source of a query of Structured Streaming."""

Strategy = Annotated[
    StrategyKind, BeforeValidator(_require_generator), WithJsonSchema({"enum": _GENERATORS, "type": "string"})
]
"""Watermark generator in a definition."""


class SourceWatermark(Section):
    """Watermarks of one of several sources. A source without this section has those of `[watermark]`."""

    strategy: Strategy
    """The watermark generator; `custom` is not possible."""
    delay: NonNegativeDuration = 0
    """The time that the watermark is behind the largest event time."""
    idle_timeout: NonNegativeDuration = 0
    """Time without records after which a partition of the source is idle; 0: never."""
    marker: Sql | None = None
    """SQL over the columns of the source, for punctuated watermarks, as `watermark.marker`."""

    @model_validator(mode="after")
    def _check_combinations(self) -> SourceWatermark:
        if self.strategy in (StrategyKind.CUSTOM, StrategyKind.STRUCTURED_STREAMING):
            msg = f"strategy must not be {self.strategy.value!r} for one of several sources"
            raise ValueError(msg)
        _require_keys_of_strategy(self.strategy, {"marker": self.marker})
        return self


class WatermarkSection(Section):
    """Watermarks: how the stream derived them, and when it emitted them."""

    strategy: Strategy = StrategyKind.NONE
    """The watermark generator."""
    delay: NonNegativeDuration = 0
    """The time that the watermark is behind the largest event time."""
    emit_interval: NonNegativeDuration = 200
    """Interval at which watermarks are emitted, or at which a micro-batch begins."""
    emit: EmissionModel = EmissionModel.TICK
    """The moments at which the source emits watermarks."""
    idle_timeout: NonNegativeDuration = 0
    """Time without records after which a partition is idle; 0: never."""
    topology: Topology = Topology.SPLITS
    """The place of the watermark generators."""
    finished_partitions: Literal["hold", "release"] = "hold"
    """`release`: a finished partition no longer holds the watermark back, as in a bounded source."""
    marker: Sql | None = None
    """SQL over the columns of the source, for punctuated watermarks and optionally for custom ones. The value is
    true if the event time of the record minus the delay is a watermark, or it is the watermark itself."""
    generator_class: UserCodeName | None = Field(default=None, alias="class")
    """Class of a custom generator: `package.module:Class`."""
    kwargs: dict[str, Any] = {}
    """Keyword arguments of the class."""
    clock_start: Instant | None = None
    """Instant at which the clock of the source starts; by default the first arrival."""
    checkpoint: Paths = ()
    """For `structured_streaming`: the checkpoint of the job, a folder of `backstream keep-batches`, or several."""
    progress: Paths = ()
    """For `structured_streaming`: files of JSON lines with the progress reports of the job."""
    event_log: Paths = ()
    """For `structured_streaming`: Spark's event logs of the job, which have its progress reports, too."""
    source: QuerySource | None = None
    """For `structured_streaming`: the source among several that a query reads: its position, or its name."""
    topic: str | None = None
    """For `structured_streaming`: the topic among several of a Kafka source."""
    late_by: LateBy = LateBy.PREVIOUS
    """For `structured_streaming`: the batch whose watermark judges a record. `own_batch` is that of Spark 3.3."""
    undecided: Undecided | None = None
    """For `structured_streaming`: what happens to records of which lost logs don't show whether they were late.
    Without it, a run of their windows is refused."""
    batches: SkipJsonSchema[str] = ""
    """The table of the batches that the preparation of the source has made."""

    def spec(self) -> Emission:
        """Return the emission for the engines."""
        generator = (self.generator_class or "", self.kwargs)
        strategy = WatermarkStrategy(self.strategy, self.delay, self.emit_interval, self.idle_timeout, *generator)
        if self.batches:
            from backstream.structured_streaming.batch_table import load_watermarks  # numpy takes long to import

            given = load_watermarks(self.batches, self.late_by, self.undecided)
            return Emission(replace(strategy, given=given, interval_ms=1), Topology.OPERATOR)
        return Emission(strategy, self.topology, self.finished_partitions == "release", model=self.emit)

    @model_validator(mode="after")
    def _check_combinations(self) -> WatermarkSection:
        _require_keys_of_strategy(self.strategy, {"marker": self.marker, "class": self.generator_class})
        self._require_keys_of_job()
        if self.kwargs and self.strategy is not StrategyKind.CUSTOM:
            msg = f"kwargs have no meaning with strategy = {self.strategy.value!r}"
            raise ValueError(msg)
        if self.emit is not EmissionModel.TICK and self.strategy not in MAX_BASED:
            msg = f"emit = {self.emit.value!r} needs monotonous, bounded_out_of_orderness, or flink_sql watermarks"
            raise ValueError(msg)
        if self.strategy is StrategyKind.FLINK_SQL:
            self._require_ticks_of_flink_sql()
        for key in _SPLIT_KEYS if self.emit is EmissionModel.MICRO_BATCH else ():
            if getattr(self, key) != type(self).model_fields[key].default:
                msg = f"{key} has no meaning with emit = 'micro_batch', with one maximum of all partitions"
                raise ValueError(msg)
        return self

    def _require_ticks_of_flink_sql(self) -> None:
        """Check that watermarks of Flink SQL are emitted as a source or an operator of the plan can do it."""
        if self.topology is Topology.OPERATOR and self.emit is EmissionModel.RECORD:
            msg = (
                "emit = 'on_event' is not possible with strategy = 'flink_sql' and topology = 'operator':"
                " scan.watermark.emit.strategy is an option of sources that make watermarks, e.g., Kafka"
            )
            raise ValueError(msg)
        if self.emit is EmissionModel.MICRO_BATCH:
            msg = "emit = 'micro_batch' is not possible with strategy = 'flink_sql': Flink has no batches"
            raise ValueError(msg)

    def _require_keys_of_job(self) -> None:
        """Check the keys of a job of Structured Streaming, which other strategies do not have."""
        kind = StrategyKind.STRUCTURED_STREAMING.value
        is_job = self.strategy is StrategyKind.STRUCTURED_STREAMING
        if is_job and not self.job_logs:
            msg = f"checkpoint is missing with strategy = {kind!r}: name it, or progress, or event_log"
            raise ValueError(msg)
        unused = () if self.batches else _EMIT_KEYS if is_job else _JOB_KEYS
        for key in unused:
            if getattr(self, key) != type(self).model_fields[key].default:
                problem = f"is for strategy = {kind!r}, got {self.strategy.value!r}"
                if is_job:
                    problem = f"has no meaning with strategy = {kind!r}: the job's logs have all"
                msg = f"{key} {problem}"
                raise ValueError(msg)

    @property
    def job_logs(self) -> tuple[str, ...]:
        """The logs of a job of Structured Streaming."""
        return (*self.checkpoint, *self.progress, *self.event_log)


def _require_keys_of_strategy(strategy: StrategyKind, values: Mapping[str, str | None]) -> None:
    """Check that the keys of a strategy are given, and no keys of other strategies."""
    for key, required_by, optional_for in _STRATEGY_KEYS:
        is_given = values.get(key) is not None
        if is_given != (strategy is required_by) and not (is_given and strategy is optional_for):
            problem = "has no meaning" if is_given else "is missing"
            msg = f"{key} {problem} with strategy = {strategy.value!r}"
            raise ValueError(msg)


_EMIT_KEYS = ("emit_interval", "emit", "idle_timeout", "topology", "finished_partitions", "clock_start")
"""Keys about the moments at which watermarks are emitted."""
_JOB_KEYS = ("checkpoint", "progress", "event_log", "source", "topic", "late_by", "undecided")
"""Keys of a job of Structured Streaming."""

_SPLIT_KEYS = ("topology", "idle_timeout", "finished_partitions")
"""Keys about single partitions."""

_STRATEGY_KEYS = (
    ("marker", StrategyKind.PUNCTUATED, StrategyKind.CUSTOM),
    ("class", StrategyKind.CUSTOM, StrategyKind.CUSTOM),
)
"""Key, the strategy that requires it, and the strategy for which it is optional."""


DELAYED = (StrategyKind.BOUNDED, StrategyKind.FLINK_SQL, StrategyKind.PUNCTUATED, StrategyKind.TIME_LAG)
"""Strategies that use `watermark.delay`."""


def find_unused_keys(section: WatermarkSection | SourceWatermark) -> Iterator[str]:
    """Yield a sentence for each key that has no effect beside the other keys of its section."""
    strategy = section.strategy
    if section.delay and strategy not in (*DELAYED, StrategyKind.STRUCTURED_STREAMING):
        yield (
            f"delay has no meaning with strategy = {strategy.value!r}, got {duration_text(section.delay)}:"
            f" set strategy to {StrategyKind.BOUNDED.value!r}"
        )
    if not section.idle_timeout:
        return
    timeout = duration_text(section.idle_timeout)
    if strategy is StrategyKind.NONE:
        yield f"idle_timeout has no meaning with strategy = 'none', got {timeout}"
    elif isinstance(section, WatermarkSection) and not section.emit_interval:
        yield f"idle_timeout has no meaning with emit_interval = '0s', got {timeout}: idleness is found at ticks"


class LatenessSection(Section):
    """Allowed lateness: how long the state of a fired window is kept for late events."""

    allowed: NonNegativeDuration = 0
    """The time that the state of a fired window is kept for late events."""
