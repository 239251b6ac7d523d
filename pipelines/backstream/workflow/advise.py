"""Recommend a watermark delay from recorded events; nothing is planned, staged or published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition, TimeKind
from backstream.errors import PlanError, SpecError
from backstream.eventtime.delay_analysis import DelayAdvice, require_share
from backstream.eventtime.emission import EmissionModel, Topology
from backstream.eventtime.instants import duration_text
from backstream.eventtime.intervals import Interval, backfill_range
from backstream.eventtime.outages import Outage
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermark_holders import (
    ArrivalBucket,
    Span,
    WatermarkHolder,
    find_watermark_holders,
    recommend_idle_timeout_ms,
)
from backstream.eventtime.windows import FixedWindow, Session
from backstream.installed_spark import require_queries
from backstream.runs.home import Home
from backstream.runs.plan import InputFile
from backstream.source.columns import resolve_columns
from backstream.source.damaged_files import require_no_damage
from backstream.source.files import find_arrival_bounds, inspect_files, list_source_files
from backstream.spark.delay_analysis import AnalysisRange, load_arrival_buckets, measure_delays
from backstream.storage.files import write_text
from backstream.workflow.plan.shared_home import require_files_on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STAGES = ("watermarks", "critical delays")
"""The two passes over the data, in order."""


@dataclass(frozen=True, slots=True)
class AssumedSettings:
    """A hypothesis: settings in ms (None: as in the definition), punctuated watermarks, and outages."""

    idle_timeout_ms: int | None = None
    allowed_lateness_ms: int | None = None
    emits_after_each_record: bool = False
    outages: Sequence[Outage] = ()

    def __str__(self) -> str:
        """Return the assumptions as text; empty without any."""
        parts = [str(outage) for outage in self.outages]
        if self.idle_timeout_ms is not None:
            parts.append(f"idle timeout {duration_text(self.idle_timeout_ms)}")
        if self.allowed_lateness_ms is not None:
            parts.append(f"allowed lateness {duration_text(self.allowed_lateness_ms)}")
        if self.emits_after_each_record:
            parts.append("a watermark after each record")
        return ", ".join(parts)

    def apply(self, definition: Definition, place: str) -> Definition:
        """Return the definition with these settings.

        Raises:
            SpecError: when the definition has several sources, whose timeouts are their own.
        """
        changes: dict[str, Any] = {}
        watermark: dict[str, Any] = {}
        if self.idle_timeout_ms is not None:
            watermark["idle_timeout"] = self.idle_timeout_ms
        if self.emits_after_each_record:
            watermark["emit"] = EmissionModel.RECORD
        if watermark:
            if definition.source.parts:
                what = "an idle timeout" if "idle_timeout" in watermark else "punctuated watermarks"
                msg = f"cannot assume {what} for {definition.name}: it has several sources ({place})"
                raise SpecError(msg)
            changes["watermark"] = definition.watermark.model_copy(update=watermark)
        if self.allowed_lateness_ms is not None:
            changes["lateness"] = definition.lateness.model_copy(update={"allowed": self.allowed_lateness_ms})
        return definition.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """A checked range of recorded events; `keep` is the share of records that must not be dropped.

    `assumed` describes the hypothesis; empty without one. `without` is then the request without it.
    """

    definition: Definition
    recorded: AnalysisRange
    keep: float
    home: Home
    assumed: str = ""
    without: AdviceRequest | None = None

    @property
    def stages(self) -> Sequence[str]:
        """The passes over the data, in order."""
        if self.without is None:
            return _STAGES
        return [*(f"{stage} as recorded" for stage in _STAGES), *_STAGES]


def prepare_advice(
    definition_path: Path,
    since_ms: int,
    until_ms: int,
    keep: float,
    home: Home,
    assumed: AssumedSettings | None = None,
) -> AdviceRequest:
    """Check that a delay can be recommended for a range; only the footers of the input files are read.

    Args:
        definition_path: the TOML file.
        since_ms: first instant of the range.
        until_ms: first instant after the range.
        keep: share of records, above 0 and at most 1, that must not be dropped.
        home: the folder that holds all state.
        assumed: the settings that replace those of the definition; None: none.

    Raises:
        SpecError: when the definition, the range or the share is wrong, or the windows do not use event time.
        PlanError: when the source cannot be read, or has no arrival times.
    """
    place = str(definition_path)
    require_share(keep)
    interval = backfill_range(since_ms, until_ms)
    definition = resolve_paths(load_definition(definition_path), home)
    definition = assumed.apply(definition, place) if assumed else definition
    window = _fixed_window(definition, place)
    require_queries(f"advise on {definition.name}", place)
    require_files_on_disk(definition, "advise on", place)
    source = inspect_files(list_source_files(definition.source, place), definition.source)
    require_no_damage(source.damaged, place)
    columns = resolve_columns(source.shapes, definition, place)
    clock = _find_clock(definition, source.inputs, place)
    near = Interval(since_ms, until_ms + max(window.size_ms, window.end_step_ms))
    if not any(file.may_hold(near) for file in source.inputs):
        raise _no_record_error(definition, interval)
    recorded = AnalysisRange(definition, window, clock, interval, near, source.inputs, columns.types)
    if assumed is None or not str(assumed):
        return AdviceRequest(definition, recorded, keep, home)
    without = prepare_advice(definition_path, since_ms, until_ms, keep, home)
    recorded = _assume_outages(recorded, assumed.outages)
    return AdviceRequest(definition, recorded, keep, home, str(assumed), without)


def _assume_outages(recorded: AnalysisRange, outages: Sequence[Outage]) -> AnalysisRange:
    """Return the range with outages; the bounds of arrival of its files and its clock include the new arrivals."""
    clock, files = recorded.clock, list(recorded.files)
    for outage in outages:
        end_ms = outage.interval.end_ms
        if outage.interval.start_ms <= clock.end_ms:
            clock = replace(clock, end_ms=max(clock.end_ms, end_ms))
        files = [
            file
            if file.max_arrival_ms is None or file.max_arrival_ms < outage.interval.start_ms
            else replace(file, max_arrival_ms=max(file.max_arrival_ms, end_ms))
            for file in files
        ]
    return replace(recorded, clock=clock, files=files, outages=tuple(outages))


def _fixed_window(definition: Definition, place: str) -> FixedWindow:
    window = definition.window.spec()
    if isinstance(window, Session):
        msg = (
            f"cannot advise on {definition.name}: it has session windows ({place})\n"
            "  the sessions of a record depend on the records before it, and therefore on the delay"
        )
        raise SpecError(msg)
    if window.zone:
        msg = (
            f"cannot advise on {definition.name}: its windows are in local time ({place}, window.time_zone)\n"
            "  the delay that a window needs depends on the change of the clocks in it"
        )
        raise SpecError(msg)
    if definition.watermark.job_logs:
        msg = (
            f"cannot advise on {definition.name}: it replays a job of Structured Streaming ({place})\n"
            "  with another delay or an outage, the job would have had other batches, and no log shows which"
        )
        raise SpecError(msg)
    if definition.time is not TimeKind.EVENT:
        msg = (
            f"cannot advise on {definition.name}: its windows use {definition.time.value} time ({place})\n"
            "  only windows of event time can have records out of order"
        )
        raise SpecError(msg)
    return window


def _find_clock(definition: Definition, inputs: Sequence[InputFile], place: str) -> SourceClock:
    bounds = find_arrival_bounds(inputs) if definition.source.arrival_time else None
    if bounds is None:
        msg = (
            f"cannot advise on {definition.name}: the source has no arrival times ({place})\n"
            f"  source.arrival_time is {definition.source.arrival_time!r}\n\n"
            "hint: it must be a timestamp column whose Parquet footers have min and max"
        )
        raise PlanError(msg)
    start_ms = definition.watermark.clock_start
    return SourceClock(bounds[0] if start_ms is None else start_ms, definition.watermark.emit_interval, bounds[1])


def _no_record_error(definition: Definition, interval: Interval) -> PlanError:
    return PlanError(f"cannot advise on {definition.name}: no record from {interval}")


def recommend_delay(
    spark: SparkSession, request: AdviceRequest, on_stage: Callable[[str], None] = lambda _: None
) -> DelayAdvice:
    """Return the effect of every delay and the recommended one; also write them for the watermark page.

    Args:
        spark: the session.
        request: the result of `prepare_advice`.
        on_stage: called with the name of each of the request's stages at its start.

    Raises:
        PlanError: when the range has no readable record.
    """
    recorded = None
    if request.without is not None:
        recorded = _measure(spark, request.without, lambda stage: on_stage(f"{stage} as recorded"))
    advice = replace(_measure(spark, request, on_stage), recorded=recorded)
    write_text(request.home.advice(advice.dataset), advice.json_text())
    return advice


def _measure(spark: SparkSession, request: AdviceRequest, on_stage: Callable[[str], None]) -> DelayAdvice:
    delays = measure_delays(spark, request.recorded, on_stage)
    interval = request.recorded.interval
    if not delays.overdue.records:
        raise _no_record_error(request.definition, interval)
    holders, idle_timeout_ms, charted = _find_holders(spark, request)
    return DelayAdvice(
        request.definition.name,
        interval,
        request.keep,
        _current_delay_ms(request.definition),
        delays.overdue,
        delays.dropped,
        delays.behind,
        delays.firings,
        holders,
        idle_timeout_ms,
        lateness_ms=request.definition.lateness.allowed,
        has_gaps=request.recorded.window.has_gaps,
        assumed=request.assumed,
        charted=charted,
    )


def _find_holders(
    spark: SparkSession, request: AdviceRequest
) -> tuple[list[WatermarkHolder], int | None, Span | None]:
    """Return the partitions that hold the watermark, an idle timeout if none is set, and the time of a chart."""
    definition = request.definition
    if definition.watermark.topology is Topology.OPERATOR:
        return [], None, None
    buckets, width_ms = load_arrival_buckets(spark, request.recorded)
    current_ms = max(strategy.idle_timeout_ms for strategy in definition.emission.strategies)
    charted = _find_charted(buckets, request.recorded.interval)
    holders = find_watermark_holders(buckets, current_ms, definition.quality.named_partitions, charted)
    timeout_ms = recommend_idle_timeout_ms(buckets, width_ms)
    return holders, timeout_ms if not current_ms else None, charted


def _find_charted(buckets: Sequence[ArrivalBucket], interval: Interval) -> Span | None:
    """Return the range of the request as arrivals, or all arrivals if it has none; None without arrivals."""
    if not buckets:
        return None
    first_ms = min(bucket.first_arrival_ms for bucket in buckets)
    last_ms = max(bucket.last_arrival_ms for bucket in buckets)
    start_ms, end_ms = max(first_ms, interval.start_ms), min(last_ms, interval.end_ms)
    return (start_ms, end_ms) if start_ms < end_ms else (first_ms, last_ms)


def _current_delay_ms(definition: Definition) -> int | None:
    """Return the delay of the definition; None if its watermarks have no delay of this kind, or several."""
    strategies = definition.emission.strategies
    delays_ms = {strategy.bound_ms for strategy in strategies}
    kinds = {strategy.kind for strategy in strategies}
    return (
        delays_ms.pop()
        if kinds <= {StrategyKind.BOUNDED, StrategyKind.MONOTONOUS} and len(delays_ms) == 1
        else None
    )
