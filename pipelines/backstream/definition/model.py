"""Define the keys of a definition as a validated model. An unknown key is an error."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, duration_ms, duration_text, instant_ms, instant_text
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermarks import Emission, EmissionModel, Topology
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling
from backstream.runs.plan import Mode
from backstream.runs.table_schemas import RESULT_COLUMNS

LONGEST_MS = 36_500 * DAY_MS
"""The maximum of a duration, a century: sums of instants and durations then fit into 64 bits."""


def _duration(value: object) -> int:
    if not isinstance(value, str):
        msg = f'must be a duration such as "1h", "30m" or "200ms", got {value!r}'
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns ValueError, not TypeError, into a finding
    value_ms = duration_ms(value)
    if abs(value_ms) > LONGEST_MS:
        msg = f"must be at most {duration_text(LONGEST_MS)}, got {value}"
        raise ValueError(msg)
    return value_ms


def _positive(value_ms: int) -> int:
    if value_ms <= 0:
        msg = f"must be positive, got {value_ms} ms"
        raise ValueError(msg)
    return value_ms


def _not_negative(value_ms: int) -> int:
    if value_ms < 0:
        msg = f"must not be negative, got {value_ms} ms"
        raise ValueError(msg)
    return value_ms


def _instant(value: object) -> int:
    try:
        return instant_ms(str(value), "")  # the finding begins with the key
    except SpecError as error:
        raise ValueError(str(error).lstrip()) from None


def _forwards(span_ms: tuple[int, int]) -> tuple[int, int]:
    if span_ms[0] >= span_ms[1]:
        msg = f"must begin before it ends, got {instant_text(span_ms[0])} to {instant_text(span_ms[1])}"
        raise ValueError(msg)
    return span_ms


def _partitions(value: object) -> object:
    if value == "observed" or (isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)):
        return value
    msg = f'must be "observed" or a list of source partitions, got {value!r}'
    raise ValueError(msg)


DURATION_PATTERN = r"^-?(\d+(ms|s|m|h|d))+$"
_AS_DURATION = WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}, mode="validation")
_AS_TEXT = WithJsonSchema({"type": "string"}, mode="validation")

Duration = Annotated[
    int, BeforeValidator(_duration), PlainSerializer(duration_text, when_used="json"), _AS_DURATION
]
"""A duration in milliseconds; as text such as `1h` in a file."""
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
NonNegativeDuration = Annotated[Duration, AfterValidator(_not_negative)]
Instant = Annotated[int, BeforeValidator(_instant), PlainSerializer(instant_text, when_used="json"), _AS_TEXT]
"""An instant in epoch milliseconds; as ISO 8601 text in a file."""
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=100)]
"""A name in lower case. Two underscores in a row are reserved for the side tables of a dataset."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class Source(_Section):
    """The files with the recorded events, and the columns with their times, keys, and order."""

    format: Literal["parquet"] = "parquet"
    """The format of the files."""
    path: str
    """The folder of the files. `${NAME}` is replaced by an environment variable."""
    event_time: str
    """The event time of a record: a column, or SQL over the columns."""
    arrival_time: str | None = None
    """The arrival time of a record: a column, or SQL over the columns. A replay needs it."""
    partition: str | None = None
    """The column of the source partition, e.g., the Kafka partition; by default there is one partition."""
    sequence: str | None = None
    """The column of the order within a source partition, e.g., the Kafka offset; by default the arrival time."""
    key: tuple[str, ...] = ()
    """The columns of the key: the result has one row per key and window."""
    deduplicate_on: tuple[str, ...] = ()
    """The columns that identify a record: later records with the same values are duplicates, and are removed."""
    event_time_range: Annotated[tuple[Instant, Instant], AfterValidator(_forwards)] = Field(
        default=(0, instant_ms("2100-01-01", "end")),
        json_schema_extra={"default": ["1970-01-01T00:00Z", "2100-01-01T00:00Z"]},
    )
    """The valid event times, half-open. Records with other event times go to the table `__quarantine`."""
    corrupt_files: Literal["fail", "skip"] = "fail"
    """`skip` leaves damaged files out, and the plan, the report, and the quality gate list them. With `fail`, the
    `plan` step refuses a range that needs a damaged file."""


class TumblingWindow(_Section):
    """Windows of a fixed size without overlap."""

    kind: Literal["tumbling"]
    """The kind of window."""
    size: PositiveDuration
    """The length of a window."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""

    def spec(self) -> Tumbling:
        """Return the window assigner of the event-time rules."""
        return Tumbling(self.size, self.offset)


class SlidingWindow(_Section):
    """Windows of a fixed size that overlap: a record is in several windows."""

    kind: Literal["sliding"]
    """The kind of window."""
    size: PositiveDuration
    """The length of a window."""
    slide: PositiveDuration
    """The time between the starts of two windows."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""

    def spec(self) -> Sliding:
        """Return the window assigner of the event-time rules."""
        return Sliding(self.size, self.slide, self.offset)


class SessionWindow(_Section):
    """Windows that end after a pause: per key, events at most one gap apart are in the same window."""

    kind: Literal["session"]
    """The kind of window."""
    gap: PositiveDuration
    """The longest pause within a session."""

    def spec(self) -> Session:
        """Return the window assigner of the event-time rules."""
        return Session(self.gap)


class CumulateWindow(_Section):
    """Windows that share a start and grow by a step up to their maximum size."""

    kind: Literal["cumulate"]
    """The kind of window."""
    size: PositiveDuration
    """The maximum length of a window, a multiple of `step`."""
    step: PositiveDuration
    """The difference between the lengths of two windows."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""

    def spec(self) -> Cumulate:
        """Return the window assigner of the event-time rules."""
        return Cumulate(self.size, self.step, self.offset)


GENERATOR_PATTERN = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


class WatermarkSection(_Section):
    """The watermarks of the stream. They have no effect in a recompute."""

    strategy: StrategyKind = StrategyKind.NONE
    """The watermark generator."""
    delay: NonNegativeDuration = 0
    """The time that the watermark is behind the largest event time."""
    emit_interval: NonNegativeDuration = 200
    """The time between two watermarks; with `emit = "micro_batch"`, the time between the starts of two batches."""
    emit: EmissionModel = EmissionModel.TICK
    """The moments at which the source emits watermarks."""
    idle_timeout: NonNegativeDuration = 0
    """The time without records after which a source partition is idle; 0: never."""
    topology: Topology = Topology.SPLITS
    """The place of the watermark generators."""
    finished_partitions: Literal["hold", "release"] = "hold"
    """With `release`, a partition leaves the watermark merge after its last record, as in a bounded source."""
    marker: str | None = None
    """SQL over the columns of the source, for punctuated watermarks and for custom ones that need it. The value
    is true if the event time of the record minus the delay is a watermark, or the watermark itself."""
    generator_class: Annotated[str, Field(pattern=GENERATOR_PATTERN)] | None = Field(default=None, alias="class")
    """The class of a custom watermark generator, as `package.module:Class`."""
    kwargs: dict[str, Any] = {}
    """The keyword arguments of the class of a custom generator."""
    clock_start: Instant | None = None
    """The instant at which the source of the stream started; by default the first arrival."""

    def spec(self) -> Emission:
        """Return the emission model of the engines."""
        generator = (self.generator_class or "", self.kwargs)
        strategy = WatermarkStrategy(self.strategy, self.delay, self.emit_interval, self.idle_timeout, *generator)
        return Emission(strategy, self.topology, self.finished_partitions == "release", model=self.emit)

    @model_validator(mode="after")
    def _complete(self) -> WatermarkSection:
        values = {"marker": self.marker, "class": self.generator_class}
        for name, kind, allowed in _OWN_KEYS:
            is_said = values[name] is not None
            if is_said != (self.strategy is kind) and not (is_said and self.strategy is allowed):
                says = "has no meaning" if is_said else "is missing"
                msg = f"{name} {says} with strategy = {self.strategy.value!r}"
                raise ValueError(msg)
        if self.kwargs and self.strategy is not StrategyKind.CUSTOM:
            msg = f"kwargs have no meaning with strategy = {self.strategy.value!r}"
            raise ValueError(msg)
        if self.emit is not EmissionModel.TICK and self.strategy not in _MAXIMA:
            msg = f"emit = {self.emit.value!r} needs monotonous or bounded_out_of_orderness watermarks"
            raise ValueError(msg)
        return self


_OWN_KEYS = (
    ("marker", StrategyKind.PUNCTUATED, StrategyKind.CUSTOM),
    ("class", StrategyKind.CUSTOM, StrategyKind.CUSTOM),
)
_MAXIMA = (StrategyKind.MONOTONOUS, StrategyKind.BOUNDED)


class LatenessSection(_Section):
    """The allowed lateness. It has no effect in a recompute."""

    allowed: NonNegativeDuration = 0
    """The time that the state of a fired window is kept for late events."""


class Backfill(_Section):
    """The settings of runs."""

    schedule: str = "@daily"
    """The cron expression of the DAG `backfill_<name>`."""
    chunk: PositiveDuration = DAY_MS
    """The length of one unit of work: whole days, and a multiple of the window."""
    max_chunks: int = Field(default=10_000, ge=1)
    """The maximum number of chunks per run. The `plan` step refuses a longer range."""
    max_events_per_job: int = Field(default=4_000_000, ge=0)
    """Adjacent chunks run as one Spark job up to this number of events; 0: each chunk runs as its own job."""
    engine: Literal["auto", "spark", "native"] = "auto"
    """The engine that computes windows. `native` is DuckDB within Spark tasks and supports most definitions.
    `auto` selects `native` if it supports the definition, and `spark` otherwise."""
    mode: Mode = Mode.RECOMPUTE
    """The mode of runs that don't set one."""
    publish: Literal["first", "live", "final"] = "final"
    """The published value of a window: the first pane, the last pane of the stream, or the value of all events."""
    keep_firings: bool = False
    """Whether the table `__firings` stores each pane of each window; replay only."""
    deadline: PositiveDuration | None = None
    """The time from queueing to the end of a Dag run after which Airflow sends an alert; by default no alert."""
    max_arrival_delay: NonNegativeDuration | None = None
    """The maximum time between the event time and the arrival of a record. A day is sealed when each source
    partition has delivered a record that arrived later. Only sealed days are published as final. By default there
    is no check."""


class TimeKind(StrEnum):
    """The time that assigns records to windows."""

    EVENT = "event"
    """The event time."""
    INGESTION = "ingestion"
    """The arrival time, with watermarks of the arrival time."""
    PROCESSING = "processing"
    """The arrival time. Windows fire by the same clock, so no record is late."""


class Limits(_Section):
    """A soft and a hard limit of a share between 0 and 1."""

    warn: float = Field(ge=0, le=1)
    """The verdict is at least `warn` above this share."""
    fail: float = Field(ge=0, le=1)
    """The verdict is `fail` above this share, and nothing is published."""

    @model_validator(mode="after")
    def _ordered(self) -> Limits:
        if self.warn > self.fail:
            msg = f"warn must not be above fail, got warn = {self.warn} and fail = {self.fail}"
            raise ValueError(msg)
        return self


class Expected(_Section):
    """The expected events: Parquet files with one row per event, e.g., a timetable or an order book."""

    path: str
    """The folder of the files. `${NAME}` is replaced by an environment variable."""
    event_time: str
    """The column of the event time."""
    partition: str | None = None
    """The column of the source partition."""


class Quality(_Section):
    """The limits of the quality gate."""

    suite: Name = "window_audit"
    """The suite of expectations."""
    late_ratio: Limits = Limits(warn=0.05, fail=0.25)
    """The share of late and dropped events."""
    dropped_ratio: Limits = Limits(warn=0.05, fail=0.25)
    """The share of events that no window contains, because they arrived after the allowed lateness."""
    missing_ratio: Limits = Limits(warn=0.0, fail=0.25)
    """The share of expected windows (per source partition) without an event."""
    quarantined_ratio: Limits = Limits(warn=0.0, fail=0.01)
    """The share of records that cannot be read as events."""
    duplicate_ratio: Limits = Limits(warn=0.05, fail=1.0)
    """The share of duplicates, if `source.deduplicate_on` is set."""
    rows_ratio: float = Field(default=0.5, ge=0)
    """The minimum number of rows that a run writes for each row that it replaces."""
    expected_partitions: Annotated[tuple[str, ...] | Literal["observed"], BeforeValidator(_partitions)] = (
        "observed"
    )
    """The source partitions that must deliver events; `observed`: all that delivered an event in the range."""
    expected: Expected | None = None
    """The expected events; by default no check."""


class Approval(_Section):
    """The approval by a person before the publication in Airflow."""

    when: Literal["never", "warn", "always", "restatement"] = "never"
    """The runs to approve. `warn`: unless the verdict is `pass`; `restatement`: if published rows change."""
    timeout: PositiveDuration = DAY_MS
    """The time to answer. Without an answer the run is rejected."""


class Definition(_Section):
    """One dataset: recorded events, windows, watermarks, aggregates, and the conditions of a publication."""

    name: Name
    """The name of the dataset and of its table."""
    description: str = ""
    """A text for the pages in Airflow."""
    source: Source
    """The input."""
    window: Annotated[TumblingWindow | SlidingWindow | SessionWindow | CumulateWindow, Field(discriminator="kind")]
    """The windows."""
    time: TimeKind = TimeKind.EVENT
    """The time that assigns records to windows."""
    watermark: WatermarkSection = WatermarkSection()
    """The watermarks of the stream."""
    lateness: LatenessSection = LatenessSection()
    """The allowed lateness."""
    aggregates: dict[Name, str] = Field(min_length=1)
    """The columns of the result: a name and an aggregate in Spark SQL, e.g., `revenue = "sum(amount)"`."""
    backfill: Backfill = Backfill()
    """The settings of runs."""
    quality: Quality = Quality()
    """The limits of the quality gate."""
    approval: Approval = Approval()
    """The approval by a person."""

    @property
    def metric_windows(self) -> Tumbling | Sliding:
        """The windows that counts are kept for: of sessions the hours, of cumulating windows the full ones."""
        spec = self.window.spec()
        if isinstance(spec, Session):
            return Tumbling(HOUR_MS)
        return Tumbling(spec.size_ms, spec.offset_ms) if isinstance(spec, Cumulate) else spec

    @property
    def timed_source(self) -> Source:
        """The source with the time that windows are cut by as its event time."""
        if self.time is TimeKind.EVENT:
            return self.source
        return self.source.model_copy(update={"event_time": self.source.arrival_time})

    @property
    def read_by(self) -> dict[str, Any]:
        """All that decides how a row of the source is read as an event."""
        return self.source.model_dump(mode="json", exclude={"corrupt_files"}) | {"time": self.time.value}

    @property
    def unit_ms(self) -> int:
        """The grid on which the windows of `cells` start."""
        cells = self.metric_windows
        return cells.slide_ms if isinstance(cells, Sliding) else cells.size_ms

    @property
    def definition_hash(self) -> str:
        """Hash of the content, not of the spelling."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @model_validator(mode="after")
    def _consistent(self) -> Definition:
        for complaint in self._complaints():
            raise ValueError(complaint)
        return self

    def _complaints(self) -> list[str]:
        window, chunk_ms = self.window, self.backfill.chunk
        if not isinstance(window, SessionWindow):
            unit_ms = window.slide if isinstance(window, SlidingWindow) else window.size
            if abs(window.offset) >= unit_ms:
                unit, offset = duration_text(unit_ms), duration_text(window.offset)
                return [f"window.offset must be smaller than {unit}, got {offset}"]
        if isinstance(window, CumulateWindow) and window.size % window.step:
            size, step = duration_text(window.size), duration_text(window.step)
            return [f"window.size must be a multiple of window.step = {step}, got {size}"]
        unit_ms, found = self.unit_ms, []
        unit, chunk = duration_text(unit_ms), duration_text(chunk_ms)
        if chunk_ms % unit_ms:
            found.append(f"backfill.chunk must be a multiple of the window's {unit}, got {chunk}")
        if chunk_ms % DAY_MS:
            found.append(f"backfill.chunk must be whole days (the lake's unit), got {chunk}")
        if self.time is TimeKind.PROCESSING and self.watermark.strategy is not StrategyKind.NONE:
            found.append('watermark.strategy must be "none" with time = "processing", which knows no lateness')
        if self.time is not TimeKind.EVENT and self.source.arrival_time is None:
            found.append(f"source.arrival_time is missing, which time = {self.time.value!r} is about")
        return found + self._name_complaints()

    def _name_complaints(self) -> list[str]:
        key = self.source.key
        twice = sorted({name for name in key if key.count(name) > 1})
        found = [f"source.key must name each column once, got {name!r} more than once" for name in twice]
        taken = "has the name of a column that the result has already"
        found += [f"source.key {name!r} {taken}" for name in sorted(RESULT_COLUMNS & set(key))]
        found += [f"aggregates.{name} {taken}" for name in sorted({*key, *RESULT_COLUMNS} & set(self.aggregates))]
        return found
