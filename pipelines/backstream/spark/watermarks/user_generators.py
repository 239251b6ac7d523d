"""Run custom watermark generators on the executors: one Arrow function per source partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from backstream.errors import PlanError
from backstream.eventtime.emission import Emission, Topology
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkGenerator, generator_factory
from backstream.spark.schemas import ARRIVAL_ORDER, int64_literal
from backstream.spark.session import ship_package
from backstream.spark.watermarks.compress import compress_events
from backstream.watermarks.cells import timeline_of_maxima
from backstream.watermarks.streams import list_partitions
from backstream.watermarks.timeline import WatermarkTimeline
from backstream.watermarks.user_generators import (
    OUTPUT,
    merge_outputs,
    require_end,
    require_no_error,
    run_generators,
)

_ALL = "all"


def timeline_of_events(
    events: DataFrame,
    emission: Emission,
    clock: SourceClock,
    expected: Iterable[str] = (),
    new_generator: Callable[[], WatermarkGenerator] | None = None,
) -> WatermarkTimeline:
    """Return the watermarks of a stream with any strategy and emission model. Runs a job.

    Args:
        events: normalized events, with `marker_ms` if they carry markers.
        emission: the watermark strategy, the emission model, and the topology.
        clock: the clock of the source.
        expected: source partitions that the source reads even if they have no records.
        new_generator: creates a custom generator, in place of the strategy's. It is sent to the executors, so they
            must be able to import its module.

    Raises:
        SpecError: when a custom generator can't be created, or fails at a record or tick.
        PlanError: when punctuated watermarks lack their markers.
    """
    if new_generator is None and emission.strategy.kind is StrategyKind.CUSTOM:
        new_generator = generator_factory(emission.strategy)
        ship_package(events.sparkSession.sparkContext, emission.strategy.generator)
    is_punctuated = any(strategy.kind is StrategyKind.PUNCTUATED for strategy in emission.strategies)
    if is_punctuated and "marker_ms" not in events.columns:
        msg = "punctuated watermarks need the column `marker_ms`"
        raise PlanError(msg)
    if new_generator is None:
        cells = compress_events(events, clock, emission).toArrow()
        return timeline_of_maxima(cells, emission, clock, list_partitions(expected, cells, emission))
    emission = emission.with_custom_generator()
    outputs = _run_generators(events, emission, clock, new_generator)
    require_no_error(outputs)
    return merge_outputs(outputs, emission, clock, list_partitions(expected, outputs, emission), new_generator)


def _run_generators(
    events: DataFrame, emission: Emission, clock: SourceClock, new_generator: Callable[[], WatermarkGenerator]
) -> pa.Table:
    """Run the generators on the executors and return their output."""
    require_end(new_generator, emission, clock)

    def run_partition(table: pa.Table) -> pa.Table:
        return run_generators(table, new_generator, emission, clock)

    marker = F.col("marker_ms") if "marker_ms" in events.columns else int64_literal(None)
    sent = events.select(*ARRIVAL_ORDER, "event_time_ms", marker.alias("marker_ms"))
    by = F.lit(_ALL) if emission.topology is Topology.OPERATOR else F.col("source_partition")
    return sent.groupBy(by.alias("read_by")).applyInArrow(run_partition, from_arrow_schema(OUTPUT)).toArrow()
