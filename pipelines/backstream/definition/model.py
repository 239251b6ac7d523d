"""Define the keys of a definition as a validated model; unknown keys are errors."""

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

MAX_DURATION_MS = 36_500 * DAY_MS
"""Maximum of all durations: a century, so that sums of instants and durations stay far within 64 bits."""


def _parse_duration(value: object) -> int:
    if not isinstance(value, str):
        msg = f'must be a duration such as "1h", "30m" or "200ms", got {value!r}'
        raise ValueError(msg)  # noqa: TRY004 - pydantic reports ValueError, not TypeError
    value_ms = duration_ms(value)
    if abs(value_ms) > MAX_DURATION_MS:
        msg = f"must be at most {duration_text(MAX_DURATION_MS)}, got {value}"
        raise ValueError(msg)
    return value_ms


def _require_positive(value_ms: int) -> int:
    if value_ms <= 0:
        msg = f"must be positive, got {value_ms} ms"
        raise ValueError(msg)
    return value_ms


def _require_not_negative(value_ms: int) -> int:
    if value_ms < 0:
        msg = f"must not be negative, got {value_ms} ms"
        raise ValueError(msg)
    return value_ms


def _parse_instant(value: object) -> int:
    try:
        return instant_ms(str(value), "")  # pydantic adds the key
    except SpecError as error:
        raise ValueError(str(error).lstrip()) from None


def _require_order(span_ms: tuple[int, int]) -> tuple[int, int]:
    if span_ms[0] >= span_ms[1]:
        msg = f"must begin before it ends, got {instant_text(span_ms[0])} to {instant_text(span_ms[1])}"
        raise ValueError(msg)
    return span_ms


def _require_partitions(value: object) -> object:
    if value == "observed" or (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)):
        return value
    msg = f'must be "observed" or a list of source partitions, got {value!r}'
    raise ValueError(msg)


DURATION_PATTERN = r"^-?(\d+(ms|s|m|h|d))+$"
_AS_DURATION = WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}, mode="validation")
_AS_TEXT = WithJsonSchema({"type": "string"}, mode="validation")

Duration = Annotated[
    int, BeforeValidator(_parse_duration), PlainSerializer(duration_text, when_used="json"), _AS_DURATION
]
"""Duration in milliseconds, written as text, e.g., `1h`."""
PositiveDuration = Annotated[Duration, AfterValidator(_require_positive)]
NonNegativeDuration = Annotated[Duration, AfterValidator(_require_not_negative)]
Instant = Annotated[
    int, BeforeValidator(_parse_instant), PlainSerializer(instant_text, when_used="json"), _AS_TEXT
]
"""Instant in epoch milliseconds, written as ISO 8601 text."""
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=100)]
"""Name in snake case; two underscores in a row are reserved for the side tables of a dataset."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class Source(_Section):
    """Location of the recorded events, and the columns with their times, source partition, and sequence."""

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
    event_time_range: Annotated[tuple[Instant, Instant], AfterValidator(_require_order)] = Field(
        default=(0, instant_ms("2100-01-01", "end")),
        json_schema_extra={"default": ["1970-01-01T00:00Z", "2100-01-01T00:00Z"]},
    )
    """Half-open range of valid event times; other records are quarantined."""
    corrupt_files: Literal["fail", "skip"] = "fail"
    """`skip`: damaged files are skipped, and the plan, the report, and the quality gate list them.
    `fail`: planning fails if the range needs a damaged file."""


class TumblingWindow(_Section):
    """Tumbling window: `kind = "tumbling"`."""

    kind: Literal["tumbling"]
    """The kind of window."""
    size: PositiveDuration
    """The length of a window."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""

    def spec(self) -> Tumbling:
        """Return the window for the engines."""
        return Tumbling(self.size, self.offset)


class SlidingWindow(_Section):
    """Sliding window: `kind = "sliding"`."""

    kind: Literal["sliding"]
    """The kind of window."""
    size: PositiveDuration
    """The length of a window."""
    slide: PositiveDuration
    """The time between the starts of two windows."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""

    def spec(self) -> Sliding:
        """Return the window for the engines."""
        return Sliding(self.size, self.slide, self.offset)


class SessionWindow(_Section):
    """Session window, `kind = "session"`: events of a key that are at most a gap apart are in the same session."""

    kind: Literal["session"]
    """The kind of window."""
    gap: PositiveDuration
    """The longest pause within a session."""

    def spec(self) -> Session:
        """Return the window for the engines."""
        return Session(self.gap)


class CumulateWindow(_Section):
    """Cumulating window, `kind = "cumulate"`: windows with the same start, which grow by a step up to the size."""

    kind: Literal["cumulate"]
    """The kind of window."""
    size: PositiveDuration
    """The maximum length of a window, a multiple of `step`."""
    step: PositiveDuration
    """The difference between the lengths of two windows."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""

    def spec(self) -> Cumulate:
        """Return the window for the engines."""
        return Cumulate(self.size, self.step, self.offset)


GENERATOR_PATTERN = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


class WatermarkSection(_Section):
    """Watermarks: how the stream derived them, and when it emitted them."""

    strategy: StrategyKind = StrategyKind.NONE
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
    marker: str | None = None
    """SQL over the columns of the source, for punctuated watermarks and optionally for custom ones. The value is
    true if the event time of the record minus the delay is a watermark, or it is the watermark itself."""
    generator_class: Annotated[str, Field(pattern=GENERATOR_PATTERN)] | None = Field(default=None, alias="class")
    """Class of a custom generator: `package.module:Class`."""
    kwargs: dict[str, Any] = {}
    """Keyword arguments of the class."""
    clock_start: Instant | None = None
    """Instant at which the clock of the source starts; by default the first arrival."""

    def spec(self) -> Emission:
        """Return the emission for the engines."""
        generator = (self.generator_class or "", self.kwargs)
        strategy = WatermarkStrategy(self.strategy, self.delay, self.emit_interval, self.idle_timeout, *generator)
        return Emission(strategy, self.topology, self.finished_partitions == "release", model=self.emit)

    @model_validator(mode="after")
    def _check_combinations(self) -> WatermarkSection:
        values = {"marker": self.marker, "class": self.generator_class}
        for key, required_by, optional_for in _STRATEGY_KEYS:
            is_given = values[key] is not None
            if is_given != (self.strategy is required_by) and not (is_given and self.strategy is optional_for):
                problem = "has no meaning" if is_given else "is missing"
                msg = f"{key} {problem} with strategy = {self.strategy.value!r}"
                raise ValueError(msg)
        if self.kwargs and self.strategy is not StrategyKind.CUSTOM:
            msg = f"kwargs have no meaning with strategy = {self.strategy.value!r}"
            raise ValueError(msg)
        if self.emit is not EmissionModel.TICK and self.strategy not in _MAX_BASED:
            msg = f"emit = {self.emit.value!r} needs monotonous or bounded_out_of_orderness watermarks"
            raise ValueError(msg)
        return self


_STRATEGY_KEYS = (
    ("marker", StrategyKind.PUNCTUATED, StrategyKind.CUSTOM),
    ("class", StrategyKind.CUSTOM, StrategyKind.CUSTOM),
)
"""Key, the strategy that requires it, and the strategy for which it is optional."""
_MAX_BASED = (StrategyKind.MONOTONOUS, StrategyKind.BOUNDED)


class LatenessSection(_Section):
    """Allowed lateness: how long the state of a fired window is kept for late events."""

    allowed: NonNegativeDuration = 0
    """The time that the state of a fired window is kept for late events."""


class Backfill(_Section):
    """Settings of runs: the schedule, the chunks, the engine, and the published pane."""

    schedule: str = "@daily"
    """The cron expression of the DAG `backfill_<name>`."""
    chunk: PositiveDuration = DAY_MS
    """The length of one unit of work: whole days, and a multiple of the window."""
    max_chunks: int = Field(default=10_000, ge=1)
    """Maximum number of chunks of a run; planning rejects a longer range."""
    max_events_per_job: int = Field(default=4_000_000, ge=0)
    """Maximum number of events of adjacent chunks that run as one Spark job; 0: one job per chunk."""
    engine: Literal["auto", "spark", "native"] = "auto"
    """Engine that computes the windows. `native` is DuckDB inside Spark tasks, which supports most definitions.
    `auto` uses it for these definitions, and Spark for the others."""
    mode: Mode = Mode.RECOMPUTE
    """The mode of runs that don't set one."""
    publish: Literal["first", "live", "final"] = "final"
    """The published value of a window: the first pane, the last pane of the stream, or the value of all events."""
    keep_firings: bool = False
    """`true`: each firing of a window is stored in the table `__firings`; replay only."""
    deadline: PositiveDuration | None = None
    """Time after which an alert is sent about an unfinished run in Airflow, from the moment it was queued."""
    max_arrival_delay: NonNegativeDuration | None = None
    """Maximum delay between the event time and the arrival time of a record. A day is sealed when each partition
    has a later arrival. Only sealed days are published as final. None: seals are not checked."""


class TimeKind(StrEnum):
    """Time on which windows are based."""

    EVENT = "event"
    """Time at which the event happened."""
    INGESTION = "ingestion"
    """Time at which the record arrived, with watermarks of the arrival times."""
    PROCESSING = "processing"
    """Time at which the record arrived; windows fire by the same clock, so no record is late."""


class Limits(_Section):
    """Soft limit (`warn`) and hard limit (`fail`) of a share, between 0 and 1."""

    warn: float = Field(ge=0, le=1)
    """The verdict is at least `warn` above this share."""
    fail: float = Field(ge=0, le=1)
    """The verdict is `fail` above this share, and nothing is published."""

    @model_validator(mode="after")
    def _check_order(self) -> Limits:
        if self.warn > self.fail:
            msg = f"warn must not be above fail, got warn = {self.warn} and fail = {self.fail}"
            raise ValueError(msg)
        return self


class Expected(_Section):
    """Expected events: Parquet files with one row per event, e.g., a timetable or an order book."""

    path: str
    """The folder of the files. `${NAME}` is replaced by an environment variable."""
    event_time: str
    """The column of the event time."""
    partition: str | None = None
    """The column of the source partition."""


class Quality(_Section):
    """Expectations and limits of the quality gate."""

    suite: Name = "window_audit"
    """The suite of expectations."""
    late_ratio: Limits = Limits(warn=0.05, fail=0.25)
    """The share of late and dropped events."""
    dropped_ratio: Limits = Limits(warn=0.05, fail=0.25)
    """`late_ratio` limits the share of late and dropped events, and `dropped_ratio` the share of dropped ones."""
    missing_ratio: Limits = Limits(warn=0.0, fail=0.25)
    """Share of expected windows (per source partition) without events."""
    quarantined_ratio: Limits = Limits(warn=0.0, fail=0.01)
    """Share of the records read that are invalid."""
    duplicate_ratio: Limits = Limits(warn=0.05, fail=1.0)
    """Share of the records read that are duplicates by `source.deduplicate_on`."""
    rows_ratio: float = Field(default=0.5, ge=0)
    """Minimum of written rows per replaced row; below it, nothing is published."""
    expected_partitions: Annotated[tuple[str, ...] | Literal["observed"], BeforeValidator(_require_partitions)] = (
        "observed"
    )
    """Source partitions that must deliver records; `observed`: those with records in the range."""
    expected: Expected | None = None
    """The expected events; by default no check."""


class Approval(_Section):
    """Approval before publication."""

    when: Literal["never", "warn", "always", "restatement"] = "never"
    """`warn`: unless the verdict is pass; `restatement`: if the run replaces published rows."""
    timeout: PositiveDuration = DAY_MS
    """Time after which the publication is rejected without an answer."""


class Definition(_Section):
    """Dataset: a source of recorded events, windows, watermarks, aggregates, and limits for publication."""

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
        """Return the windows of the metrics: hours for session windows, and full windows for cumulating ones."""
        spec = self.window.spec()
        if isinstance(spec, Session):
            return Tumbling(HOUR_MS)
        return Tumbling(spec.size_ms, spec.offset_ms) if isinstance(spec, Cumulate) else spec

    @property
    def timed_source(self) -> Source:
        """Return the source with the time of the windows as its event time."""
        if self.time is TimeKind.EVENT:
            return self.source
        return self.source.model_copy(update={"event_time": self.source.arrival_time})

    @property
    def read_by(self) -> dict[str, Any]:
        """Return all settings that decide how a source row is read as an event."""
        return self.source.model_dump(mode="json", exclude={"corrupt_files"}) | {"time": self.time.value}

    @property
    def unit_ms(self) -> int:
        """Return the distance between the starts of two metric windows."""
        windows = self.metric_windows
        return windows.slide_ms if isinstance(windows, Sliding) else windows.size_ms

    @property
    def definition_hash(self) -> str:
        """Return a hash of the values, which formatting does not change."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @model_validator(mode="after")
    def _check_consistency(self) -> Definition:
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def _problems(self) -> list[str]:
        window, chunk_ms = self.window, self.backfill.chunk
        if not isinstance(window, SessionWindow):
            unit_ms = window.slide if isinstance(window, SlidingWindow) else window.size
            if abs(window.offset) >= unit_ms:
                unit, offset = duration_text(unit_ms), duration_text(window.offset)
                return [f"window.offset must be smaller than {unit}, got {offset}"]
        if isinstance(window, CumulateWindow) and window.size % window.step:
            size, step = duration_text(window.size), duration_text(window.step)
            return [f"window.size must be a multiple of window.step = {step}, got {size}"]
        unit_ms, problems = self.unit_ms, []
        unit, chunk = duration_text(unit_ms), duration_text(chunk_ms)
        if chunk_ms % unit_ms:
            problems.append(f"backfill.chunk must be a multiple of the window's {unit}, got {chunk}")
        if chunk_ms % DAY_MS:
            problems.append(f"backfill.chunk must be whole days (the lake's unit), got {chunk}")
        if self.time is TimeKind.PROCESSING and self.watermark.strategy is not StrategyKind.NONE:
            problems.append(
                'watermark.strategy must be "none" with time = "processing", in which no record is late'
            )
        if self.time is not TimeKind.EVENT and self.source.arrival_time is None:
            problems.append(f"source.arrival_time is missing, but time = {self.time.value!r} needs it")
        return problems + self._name_problems()

    def _name_problems(self) -> list[str]:
        key = self.source.key
        twice = sorted({name for name in key if key.count(name) > 1})
        problems = [f"source.key must name each column once, got {name!r} more than once" for name in twice]
        taken = "has the name of another result column"
        problems += [f"source.key {name!r} {taken}" for name in sorted(RESULT_COLUMNS & set(key))]
        problems += [
            f"aggregates.{name} {taken}" for name in sorted({*key, *RESULT_COLUMNS} & set(self.aggregates))
        ]
        return problems
