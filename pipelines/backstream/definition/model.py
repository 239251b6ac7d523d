"""Define the keys of a definition as a validated model; unknown keys are errors."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    Field,
    model_validator,
)

from backstream.definition.join_section import FUNCTION, JoinSection
from backstream.definition.prepared_columns import MARKER
from backstream.definition.result_sections import (
    CumulateWindow,
    Having,
    Job,
    Process,
    RecordFilter,
    SessionWindow,
    SlidingWindow,
    Top,
    TumblingWindow,
    UserFunction,
)
from backstream.definition.run_sections import Approval, Backfill, Publish, Quality
from backstream.definition.source_section import SHARED_KEYS, FlinkSql, SideInput, Source
from backstream.definition.values import Name, Section, Sql
from backstream.definition.watermark_sections import LatenessSection, WatermarkSection, find_unused_keys
from backstream.eventtime.emission import Emission, EmissionModel, Inputs, Topology
from backstream.eventtime.instants import DAY_MS, HOUR_MS, duration_text, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.joins.join_function import inputs_of
from backstream.eventtime.time_zones import ZONED_TIMES
from backstream.eventtime.union import SEPARATOR, UnionSource, source_name
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling, WindowSpec, find_disorder
from backstream.runs.table_schemas import RESULT_COLUMNS, ROW_POSITION, USER_CODE_COLUMNS
from backstream.structured_streaming.late_records import LateBy
from backstream.user_code import UserCode


class TimeKind(StrEnum):
    """Time on which windows are based."""

    EVENT = "event"
    """Time at which the event happened."""
    INGESTION = "ingestion"
    """Time at which the record arrived, with watermarks of the arrival times."""
    PROCESSING = "processing"
    """Time at which the record arrived; windows fire by the same clock, so no record is late."""


class Definition(Section):
    """Dataset: a source of recorded events, windows, watermarks, aggregates, and limits for publication."""

    name: Name
    """The name of the dataset and of its table."""
    description: str = ""
    """A text for the pages in Airflow."""
    source: Source
    """The input; `[[source]]` more than once unites several sources into one stream."""
    flink_sql: FlinkSql | None = Field(default=None, exclude=True)
    """A script of Flink SQL in place of most of the other keys."""
    inputs: dict[Name, SideInput] = {}
    """Further inputs of `source.transform`, by the name of its argument."""
    window: Annotated[TumblingWindow | SlidingWindow | SessionWindow | CumulateWindow, Field(discriminator="kind")]
    """The windows."""
    time: TimeKind = TimeKind.EVENT
    """The time that assigns records to windows."""
    watermark: WatermarkSection = WatermarkSection()
    """The watermarks of the stream."""
    lateness: LatenessSection = LatenessSection()
    """The allowed lateness."""
    filter: RecordFilter | None = None
    """The condition of the records that windows get."""
    aggregates: dict[Name, Sql] = {}
    """The columns of the result: a name and an aggregate in Spark SQL, e.g., `revenue = "sum(amount)"`."""
    derive_after: dict[Name, Sql] = {}
    """More columns of the result: a name and Spark SQL over keys, aggregates, `window_start`, and `window_end`."""
    having: Having | None = None
    """The condition that published rows meet."""
    top: Top | None = None
    """The rank of published rows among those of their window that meet the condition."""
    functions: dict[Name, UserFunction] = {}
    """Custom functions for SQL, by the name with which SQL calls them."""
    job: Job | None = None
    """Your own Spark job, in place of aggregates."""
    process: Process | None = None
    """A process function, in place of aggregates."""
    join: JoinSection | None = None
    """A join of two sources, in place of aggregates."""
    backfill: Backfill = Backfill()
    """The settings of runs."""
    quality: Quality = Quality()
    """The limits of the quality gate."""
    approval: Approval = Approval()
    """The approval by a person."""
    publish: Publish | None = None
    """Another table for published ranges."""

    @property
    def code_columns(self) -> dict[str, str] | None:
        """Return the declared columns of a job or a process function, with their types; None with aggregates."""
        section = self.job or self.process
        return section.columns if section else None

    def code_key(self, name: str) -> str:
        """Return the key of a declared column of a job, a process function, or a join."""
        if self.join:
            return f"join.{'left' if name in self.join.left else 'right'}.{name}"
        return f"{'job' if self.job else 'process'}.columns.{name}"

    @property
    def condition(self) -> str | None:
        """Return the SQL of `[filter]`; None without one."""
        return self.filter.where if self.filter else None

    @property
    def value_names(self) -> tuple[str, ...]:
        """Return the names of the result columns besides key and window."""
        rank = self.top.rank if self.top else None
        return (*self.pane_names, *([rank] if rank else ()))

    @property
    def pane_names(self) -> tuple[str, ...]:
        """Return the names of the result columns that each pane has; a rank is that of a published row."""
        columns = self.code_columns
        return (*self.aggregates, *self.derive_after) if columns is None else tuple(columns)

    @property
    def withholds_rows(self) -> bool:
        """Return whether rows that are computed may not be published."""
        return self.having is not None or self.top is not None

    @property
    def row_key(self) -> tuple[str, ...]:
        """Return the columns that identify a published row within its window."""
        return (*self.source.key, *ROW_POSITION) if self.process else self.source.key

    @property
    def code_reads(self) -> tuple[str, ...]:
        """Return the columns of the source that a job or a process function names."""
        section = self.job or self.process
        return (section and section.reads) or ()

    @property
    def reads_all_columns(self) -> bool:
        """Return whether a run reads every column of the source."""
        section = self.job or self.process
        return section is not None and section.reads is None

    @property
    def max_events_per_job(self) -> int:
        """Return the largest number of events of a job of several chunks.

        Without `state_reach`, each job of a process function reads the whole source, so as few as possible run.
        """
        is_unbounded = self.process is not None and self.process.state_reach is None
        return sys.maxsize if is_unbounded else self.backfill.max_events_per_job

    @property
    def user_code(self) -> tuple[UserCode, ...]:
        """Return the classes and functions of the user that a run calls."""
        named = (
            ("watermark generator", self.watermark.generator_class),
            ("job", self.job and self.job.function),
            ("process function", self.process and not self.join and self.process.process_class),
            *(("function", function.function) for function in self.functions.values()),
        )
        return tuple(UserCode(role, target) for role, target in named if target)

    @property
    def window_spec(self) -> WindowSpec:
        """Return the windows for the engines; the sessions of a job of Structured Streaming end with its logs."""
        spec = self.window.spec()
        if not (isinstance(spec, Session) and self.watermark.batches):
            return spec
        from backstream.structured_streaming.batch_table import load_batches  # numpy takes long to import

        return replace(spec, emitted_until_ms=load_batches(self.watermark.batches).emitted_until_ms)

    @property
    def metric_windows(self) -> Tumbling | Sliding:
        """Return the windows of the metrics: hours for session windows, and full windows for cumulating ones."""
        spec = self.window.spec()
        if isinstance(spec, Session):
            return Tumbling(HOUR_MS, zone=spec.zone)
        return Tumbling(spec.size_ms, spec.offset_ms, spec.zone) if isinstance(spec, Cumulate) else spec

    @property
    def timed_source(self) -> Source:
        """Return the source with the time of the windows as its event time."""
        if self.time is TimeKind.EVENT:
            return self.source
        return self.source.model_copy(update={"event_time": self.source.arrival_time})

    @property
    def emission(self) -> Emission:
        """Return the watermarks of the stream for the engines; in a union, each source has its own strategy."""
        if not self.source.parts or self.watermark.job_logs:
            return self.watermark.spec()
        sources = [
            UnionSource(str(part.name), self.watermark_of(part).spec().strategy) for part in self.source.parts
        ]
        emission = Emission.from_sources(sources, self.watermark.topology)
        return replace(emission, inputs=inputs_of(self.join.kind, self.join.semantics)) if self.join else emission

    @property
    def valid_times(self) -> Interval:
        """Return the valid event times in the time of the windows, which is local with `window.time_zone`."""
        zone, valid = self.window.spec().zone, Interval(*self.source.event_time_range)
        return zone.local_span(valid) if zone else valid

    @property
    def is_in_index(self) -> bool:
        """Return whether the arrival index tells when windows fire; its buckets follow windows in UTC."""
        return self.window.spec().zone is None and self.emission.is_in_index

    def watermark_of(self, part: Source) -> WatermarkSection:
        """Return the watermarks of one source of a union: its own, or those of the dataset."""
        if self.watermark.job_logs:  # the sources of a query have the order of those of the definition
            return self.watermark.model_copy(update={"source": str(self.source.parts.index(part))})
        return self.watermark.model_copy(update=dict(part.watermark)) if part.watermark else self.watermark

    @property
    def marker(self) -> str | None:
        """Return the SQL of the watermark that a record carries; None if no watermarks are punctuated."""
        kinds = {self.watermark_of(part).strategy for part in self.source.parts}
        return MARKER if StrategyKind.PUNCTUATED in kinds else self.watermark.marker

    @property
    def idle_timeouts(self) -> dict[str, int]:
        """Return the idle timeout by name of a source of a union; empty for a single source."""
        return {str(part.name): self.watermark_of(part).idle_timeout for part in self.source.parts}

    @property
    def read_by(self) -> dict[str, Any]:
        """Return all settings that decide how a source row is read as an event."""
        not_used = {"corrupt_files", "parts"}
        source = self.source.model_dump(mode="json", exclude_defaults=True, exclude=not_used)
        zone = self.window.spec().zone
        return source | {"time": self.time.value} | ({"time_zone": zone.name} if zone else {})

    @property
    def unit_ms(self) -> int:
        """Return the distance between the starts of two metric windows."""
        return self.metric_windows.start_step_ms

    @property
    def definition_hash(self) -> str:
        """Return a hash of the values, which formatting does not change.

        Values that equal the defaults are left out, so that a new key changes no hash of definitions without it.
        """
        content = self.model_dump(mode="json", exclude_defaults=True)
        canonical = json.dumps(content, sort_keys=True)
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
        if self.time is TimeKind.PROCESSING and self._has_watermarks:
            problems.append(
                'watermark.strategy must be "none" with time = "processing", in which no record is late'
            )
        if self.time is not TimeKind.EVENT and self.source.arrival_time is None:
            problems.append(f"source.arrival_time is missing, but time = {self.time.value!r} needs it")
        problems += self._job_problems() if self.watermark.job_logs else ()
        problems += self._time_zone_problems()
        problems += self._side_input_problems() + self._result_problems() + self._name_problems()
        return [*problems, *self._union_problems(), *self._unused_watermark_keys()]

    @property
    def _has_watermarks(self) -> bool:
        own = {part.watermark.strategy for part in self.source.parts if part.watermark}
        return {self.watermark.strategy, *own} != {StrategyKind.NONE}

    def _unused_watermark_keys(self) -> Iterator[str]:
        """Yield a problem for each key of watermarks and lateness that has no effect."""
        places = {f"source.{number}.watermark": part.watermark for number, part in enumerate(self.source.parts)}
        for place, section in {"watermark": self.watermark, **places}.items():
            yield from (f"{place}.{sentence}" for sentence in (find_unused_keys(section) if section else ()))
        if self._has_watermarks:
            return
        reason = "without watermarks: set watermark.strategy"
        if self.time is TimeKind.PROCESSING:
            reason = 'with time = "processing", in which no record is late'
        if self.lateness.allowed:
            yield f"lateness.allowed has no meaning {reason}, got {duration_text(self.lateness.allowed)}"
        for key in ("emit_interval", "topology", "finished_partitions", "clock_start"):
            if getattr(self.watermark, key) != WatermarkSection.model_fields[key].default:
                yield f"watermark.{key} has no meaning {reason}"

    def _time_zone_problems(self) -> Iterator[str]:
        """Yield the settings that are not possible with windows in local time."""
        window, zone = self.window.spec(), f"window.time_zone = {self.window.time_zone!r}"
        if window.zone is None:
            return
        if self.watermark.job_logs:
            yield f"{zone} is not possible with watermark.strategy = {self.watermark.strategy.value!r}"
        if self.code_columns is not None:
            yield f"{zone} is not possible with [{'job' if self.job else 'process'}]"
        if isinstance(window, Session) and self.lateness.allowed:
            allowed = duration_text(self.lateness.allowed)
            yield f"lateness.allowed is not possible with {zone} and sessions: Flink SQL has none, got {allowed}"
        if isinstance(window, Sliding) and window.has_gaps:
            slide, size = duration_text(window.slide_ms), duration_text(window.size_ms)
            yield f"window.slide must be at most window.size = {size} with {zone}, got {slide}"
        valid = Interval(*self.source.event_time_range)
        if valid.start_ms < ZONED_TIMES.start_ms or valid.end_ms > ZONED_TIMES.end_ms:
            yield f"source.event_time_range must be in {ZONED_TIMES} with {zone}, got {valid}"
        elif (at_ms := find_disorder(window, valid)) is not None:
            kind = "sessions" if isinstance(window, Session) else "these overlapping windows"
            yield (
                f"{zone} is not possible with {kind} when its clocks change at {instant_text(at_ms)}: some windows"
                " fire before others that end earlier; leave that time out of source.event_time_range, which is"
                f" {valid}"
            )

    def _job_problems(self) -> Iterator[str]:
        """Yield the settings that a replay of a job of Structured Streaming cannot have."""
        strategy = f"watermark.strategy = {self.watermark.strategy.value!r}"
        if isinstance(self.window, CumulateWindow):
            yield f"window.kind must be tumbling, sliding, or session with {strategy}, got {self.window.kind!r}"
        if isinstance(self.window, SessionWindow) and self.watermark.late_by is LateBy.OWN:
            yield f"watermark.late_by = {LateBy.OWN.value!r} is not possible with window.kind = 'session'"
        if isinstance(self.window, SessionWindow) and self.watermark.undecided:
            yield "watermark.undecided is not possible with window.kind = 'session': one record changes a session"
        if self.time is not TimeKind.EVENT:
            yield f"time must be event with {strategy}, got {self.time.value!r}"
        if self.code_columns is not None:
            section = "job" if self.job else "join" if self.join else "process"
            yield f"{strategy} is not possible with [{section}]"
        if self.lateness.allowed:
            allowed = duration_text(self.lateness.allowed)
            yield f"lateness.allowed has no meaning with {strategy}: Spark has none, got {allowed}"
        if not self.watermark.batches:  # else the source is that of prepared files
            yield from self._job_source_problems(strategy)

    def _job_source_problems(self, strategy: str) -> Iterator[str]:
        if self.source.parts and self.watermark.source is not None:
            yield "watermark.source has no meaning with several sources: their order is that of the query"
        for part in self.source.parts or (self.source,):
            if part.watermark:
                yield f"source.watermark of {part.name} has no meaning with {strategy}: the job has merged them"
            if part.arrival_time is not None:
                yield f"source.arrival_time has no meaning with {strategy}: a record arrives with its batch"
            if (part.partition is None) != (part.sequence is None):
                yield f"source.partition and source.sequence belong together with {strategy}"

    def _side_input_problems(self) -> list[str]:
        if any(part.transform for part in self.source.parts or (self.source,)):
            return []
        return [f"inputs.{name} has no meaning without source.transform, which gets it" for name in self.inputs]

    def _result_problems(self) -> list[str]:
        """Return problems of the section that computes the rows: there must be exactly one."""
        given = [name for name in ("aggregates", "job", "process", "join") if getattr(self, name)]
        if self.join and self.process and self.process.process_class == FUNCTION:
            given.remove("process")  # it computes the join
        if not given:
            known = "must have at least one" if "aggregates" in self.model_fields_set else "is missing"
            return [f"aggregates {known}"]
        if len(given) > 1:
            names = "aggregates, job, process, and join"
            return [f"only one of {names} can compute the rows, got {' and '.join(given)}"]
        return [*self._user_code_problems(given[0]), *(self._join_problems(self.join) if self.join else ())]

    def _user_code_problems(self, section: str) -> Iterator[str]:
        """Yield the settings that have no meaning with a section that computes rows in place of aggregates."""
        if self.code_columns is None:
            return
        without_meaning = [name for name in ("derive_after", "having", "top") if getattr(self, name)]
        if without_meaning:
            yield f"{without_meaning[0]} has no meaning with [{section}], which returns the rows"
        if self.quality.verify:
            yield f"quality.verify has no meaning with [{section}], which the reference engine cannot run"
        if self.backfill.keep_firings:
            yield f"backfill.keep_firings has no meaning with [{section}]"
        if self.process is None:
            return
        if not isinstance(self.window, TumblingWindow):
            hint = ": name those of the join in [join.window]" if self.join else ""
            yield f"window.kind must be tumbling with [{section}], got {self.window.kind!r}{hint}"
        if self.backfill.publish != "final":
            yield f"backfill.publish has no meaning with [{section}], got {self.backfill.publish!r}"
        if self.lateness.allowed and not self.join:
            allowed = duration_text(self.lateness.allowed)
            yield f"lateness.allowed has no meaning with [process], which gets all records, got {allowed}"

    def _join_problems(self, join: JoinSection) -> Iterator[str]:
        parts = len(self.source.parts)
        if parts != 2:  # noqa: PLR2004 - a left and a right side
            yield f"join needs two [[source]], the left side and the right side, got {max(1, parts)}"
        if not self.source.key:
            yield "source.key is missing: a join pairs records whose key columns are equal"
        if self.time is not TimeKind.EVENT:
            yield f"time must be event with [join], got {self.time.value!r}"
        if self.lateness.allowed and inputs_of(join.kind, join.semantics) is not Inputs.GATE:
            allowed = duration_text(self.lateness.allowed)
            yield f"lateness.allowed is for a window join with semantics = 'flink_datastream', got {allowed}"

    def _union_problems(self) -> Iterator[str]:
        parts = self.source.parts
        if not parts:
            if self.source.name or self.source.watermark:
                key = "name" if self.source.name else "watermark"
                yield f"source.{key} has no meaning with one source: write [[source]] for several"
            return
        names = [part.name for part in parts]
        for number, part in enumerate(parts):
            if part.name is None:
                yield f"source.{number}.name is missing: each of several sources needs a name"
            elif part.name in names[:number]:
                yield f"source.{number}.name must differ from other sources, got {part.name!r} twice"
            for key in SHARED_KEYS:
                if getattr(part, key) != getattr(parts[0], key):
                    yield f"source.{number}.{key} must be the same in all sources"
        yield from self._union_watermark_problems()
        for partition in self.quality.named_partitions:
            if source_name(partition) not in names:
                yield (
                    f"quality.expected_partitions must begin with the name of a source, such as "
                    f"{names[0]}{SEPARATOR}0, got {partition!r}"
                )

    def _union_watermark_problems(self) -> Iterator[str]:
        """Yield the settings of `[watermark]` that have no meaning with several sources."""
        section = self.watermark
        has_shared = any(part.watermark is None for part in self.source.parts)
        if section.emit is not EmissionModel.TICK:
            yield f"watermark.emit = {section.emit.value!r} is not possible with several sources"
        if section.finished_partitions != "hold":
            yield "watermark.finished_partitions = 'release' is not possible with several sources"
        strategies = {self.watermark_of(part).strategy for part in self.source.parts}
        if StrategyKind.FLINK_SQL in strategies and section.topology is Topology.OPERATOR:
            yield "watermark.topology = 'operator' is not possible with 'flink_sql' watermarks of several sources"
        if section.strategy is StrategyKind.CUSTOM:
            yield "watermark.strategy = 'custom' is not possible with several sources"
        if section.strategy is not StrategyKind.NONE and not has_shared:
            kind = section.strategy.value
            yield f"watermark.strategy has no meaning, because each source has its own, got {kind!r}"

    def _name_problems(self) -> list[str]:
        key = self.source.key
        twice = sorted({name for name in key if key.count(name) > 1})
        problems = [f"source.key must name each column once, got {name!r} more than once" for name in twice]
        taken = "has the name of another result column"
        reserved = RESULT_COLUMNS if self.code_columns is None else RESULT_COLUMNS | USER_CODE_COLUMNS
        problems += [f"source.key {name!r} {taken}" for name in sorted(reserved & set(key))]
        has_code = self.code_columns is not None
        names = sorted({*key, *reserved} & set(self.value_names))
        problems += [f"{self.code_key(name) if has_code else f'aggregates.{name}'} {taken}" for name in names]
        others = {*key, *reserved, *self.aggregates}
        problems += [f"derive_after.{name} {taken}" for name in sorted(others & set(self.derive_after))]
        if self.top is None:
            return problems
        if self.top.rank in {*others, *self.derive_after}:
            problems.append(f"top.rank {self.top.rank!r} {taken}")
        no_key = [name for name in self.top.partition_by if name not in key]
        return problems + [f"top.partition_by must name columns of source.key, got {name!r}" for name in no_key]
