"""What a user may write in a definition, as a validated model; every key unknown to it is an error."""

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
"""No duration is longer than a century, so that sums of instants and durations stay far within 64 bits."""


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
"""Written as text such as `1h`; milliseconds once read."""
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
NonNegativeDuration = Annotated[Duration, AfterValidator(_not_negative)]
Instant = Annotated[int, BeforeValidator(_instant), PlainSerializer(instant_text, when_used="json"), _AS_TEXT]
"""Written as ISO 8601 text; epoch milliseconds once read."""
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=100)]
"""Two underscores in a row are kept for the side tables of a dataset."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class Source(_Section):
    """Where the recorded events lie and which columns say when, where and in which order."""

    format: Literal["parquet"] = "parquet"
    path: str
    event_time: str
    arrival_time: str | None = None
    partition: str | None = None
    sequence: str | None = None
    key: tuple[str, ...] = ()
    deduplicate_on: tuple[str, ...] = ()
    event_time_range: Annotated[tuple[Instant, Instant], AfterValidator(_forwards)] = Field(
        default=(0, instant_ms("2100-01-01", "end")),
        json_schema_extra={"default": ["1970-01-01T00:00Z", "2100-01-01T00:00Z"]},
    )
    """Half-open; an event time outside is absurd, and its record goes to quarantine."""
    corrupt_files: Literal["fail", "skip"] = "fail"
    """`skip`: a damaged file is left out, and the plan, the report and the gate say so; `fail`: a range that needs
    one is refused."""


class TumblingWindow(_Section):
    """`kind = "tumbling"`."""

    kind: Literal["tumbling"]
    size: PositiveDuration
    offset: Duration = 0

    def spec(self) -> Tumbling:
        """The same as a formula."""
        return Tumbling(self.size, self.offset)


class SlidingWindow(_Section):
    """`kind = "sliding"`."""

    kind: Literal["sliding"]
    size: PositiveDuration
    slide: PositiveDuration
    offset: Duration = 0

    def spec(self) -> Sliding:
        """The same as a formula."""
        return Sliding(self.size, self.slide, self.offset)


class SessionWindow(_Section):
    """`kind = "session"`: per key, events less than or exactly a gap apart belong together."""

    kind: Literal["session"]
    gap: PositiveDuration

    def spec(self) -> Session:
        """The same as a formula."""
        return Session(self.gap)


class CumulateWindow(_Section):
    """`kind = "cumulate"`: windows that share a start and grow by a step until they have their size."""

    kind: Literal["cumulate"]
    size: PositiveDuration
    step: PositiveDuration
    offset: Duration = 0

    def spec(self) -> Cumulate:
        """The same as a formula."""
        return Cumulate(self.size, self.step, self.offset)


GENERATOR_PATTERN = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


class WatermarkSection(_Section):
    """When the stream believed that no earlier event was to come."""

    strategy: StrategyKind = StrategyKind.NONE
    delay: NonNegativeDuration = 0
    emit_interval: NonNegativeDuration = 200
    """How often a watermark is emitted; with `emit = "micro_batch"` how often a batch begins."""
    emit: EmissionModel = EmissionModel.TICK
    idle_timeout: NonNegativeDuration = 0
    """0: a silent partition is never idle."""
    topology: Topology = Topology.SPLITS
    finished_partitions: Literal["hold", "release"] = "hold"
    """`release`: a partition leaves the merge after its last record, as in a bounded source."""
    marker: str | None = None
    """For punctuated watermarks, and custom ones that ask for it. SQL over the source's columns: true where a
    record's event time less the delay is a watermark, or an instant that is one itself."""
    generator_class: Annotated[str, Field(pattern=GENERATOR_PATTERN)] | None = Field(default=None, alias="class")
    """For custom watermarks: `package.module:Class`."""
    kwargs: dict[str, Any] = {}
    """Keyword arguments of the custom generator's class."""
    clock_start: Instant | None = None
    """When the stream's source was opened; by default with the first arrival."""

    def spec(self) -> Emission:
        """The same as the engines know it."""
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
    """How long a fired window is kept for late events."""

    allowed: NonNegativeDuration = 0


class Backfill(_Section):
    """How history is recomputed."""

    schedule: str = "@daily"
    chunk: PositiveDuration = DAY_MS
    max_chunks: int = Field(default=10_000, ge=1)
    """A range of more chunks is refused: it is mistyped, or wants a larger chunk."""
    max_events_per_job: int = Field(default=4_000_000, ge=0)
    """Chunks side by side run as one while they have no more events than that in all; 0: each runs by itself."""
    engine: Literal["auto", "spark", "native"] = "auto"
    """What computes windows. `native` is DuckDB inside tasks of Spark, which knows most definitions; `auto`
    takes it for those, and Spark for the others."""
    mode: Mode = Mode.RECOMPUTE
    publish: Literal["first", "live", "final"] = "final"
    keep_firings: bool = False
    """`true` keeps every pane that a window fired in the table `__firings`; replay only."""
    deadline: PositiveDuration | None = None
    """How long after it was queued a run may take in Airflow before someone is told. Not said: nobody is."""
    max_arrival_delay: NonNegativeDuration | None = None
    """How long after its event time a record may still arrive: a day is sealed when arrivals later than that were
    seen of every partition, and only sealed days are published as final. Not said: nothing is asked."""


class TimeKind(StrEnum):
    """Which clock the windows are cut by."""

    EVENT = "event"
    """When it happened."""
    INGESTION = "ingestion"
    """When it arrived, with watermarks over the arrivals."""
    PROCESSING = "processing"
    """When it arrived; windows fire by that clock, so nothing is ever late."""


class Limits(_Section):
    """A soft and a hard limit of one share, between 0 and 1."""

    warn: float = Field(ge=0, le=1)
    fail: float = Field(ge=0, le=1)

    @model_validator(mode="after")
    def _ordered(self) -> Limits:
        if self.warn > self.fail:
            msg = f"warn must not be above fail, got warn = {self.warn} and fail = {self.fail}"
            raise ValueError(msg)
        return self


class Expected(_Section):
    """What should have come: Parquet files with one row per expected event (a timetable, an order book)."""

    path: str
    event_time: str
    partition: str | None = None


class Quality(_Section):
    """What the gate asks for."""

    suite: Name = "window_audit"
    late_ratio: Limits = Limits(warn=0.05, fail=0.25)
    dropped_ratio: Limits = Limits(warn=0.05, fail=0.25)
    """`late_ratio` counts late and dropped events, `dropped_ratio` those that no window took."""
    missing_ratio: Limits = Limits(warn=0.0, fail=0.25)
    """Share of expected windows (per source partition) without any event."""
    quarantined_ratio: Limits = Limits(warn=0.0, fail=0.01)
    """Share of the records read that cannot be normalised."""
    duplicate_ratio: Limits = Limits(warn=0.05, fail=1.0)
    """Share of the records read that had come before, where `source.deduplicate_on` looks for them."""
    rows_ratio: float = Field(default=0.5, ge=0)
    """How many rows a run must write for each row that it replaces; below it nothing is published."""
    expected_partitions: Annotated[tuple[str, ...] | Literal["observed"], BeforeValidator(_partitions)] = (
        "observed"
    )
    """Source partitions that must deliver; `observed`: those that delivered anything in the range."""
    expected: Expected | None = None


class Approval(_Section):
    """When a person is asked before publication, and how long the answer may take."""

    when: Literal["never", "warn", "always", "restatement"] = "never"
    """`warn`: unless the verdict is pass; `restatement`: when rows that are published would be replaced."""
    timeout: PositiveDuration = DAY_MS
    """No answer in time is a no."""


class Definition(_Section):
    """One dataset: a source of recorded events, a window, a watermark, aggregates, and what may be published."""

    name: Name
    description: str = ""
    source: Source
    window: Annotated[TumblingWindow | SlidingWindow | SessionWindow | CumulateWindow, Field(discriminator="kind")]
    time: TimeKind = TimeKind.EVENT
    watermark: WatermarkSection = WatermarkSection()
    lateness: LatenessSection = LatenessSection()
    aggregates: dict[Name, str] = Field(min_length=1)
    backfill: Backfill = Backfill()
    quality: Quality = Quality()
    approval: Approval = Approval()

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
