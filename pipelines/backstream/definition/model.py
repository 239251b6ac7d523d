"""Define the keys of a definition as a validated model; unknown keys are errors."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    Field,
    model_validator,
)

from backstream.definition.prepared_columns import MARKER
from backstream.definition.result_sections import (
    CumulateWindow,
    Having,
    Job,
    Process,
    RecordFilter,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    UserFunction,
)
from backstream.definition.run_sections import Approval, Backfill, Publish, Quality
from backstream.definition.source_section import SHARED_KEYS, FlinkSql, SideInput, Source
from backstream.definition.values import Name, Section, Sql
from backstream.definition.watermark_sections import LatenessSection, WatermarkSection, find_unused_keys
from backstream.eventtime.emission import Emission, EmissionModel
from backstream.eventtime.instants import DAY_MS, HOUR_MS, duration_text
from backstream.eventtime.union import SEPARATOR, UnionSource, source_name
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling
from backstream.runs.table_schemas import RESULT_COLUMNS, ROW_POSITION, USER_CODE_COLUMNS
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
    functions: dict[Name, UserFunction] = {}
    """Custom functions for SQL, by the name with which SQL calls them."""
    job: Job | None = None
    """Your own Spark job, in place of aggregates."""
    process: Process | None = None
    """A process function, in place of aggregates."""
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

    @property
    def condition(self) -> str | None:
        """Return the SQL of `[filter]`; None without one."""
        return self.filter.where if self.filter else None

    @property
    def value_names(self) -> tuple[str, ...]:
        """Return the names of the result columns besides key and window."""
        columns = self.code_columns
        return (*self.aggregates, *self.derive_after) if columns is None else tuple(columns)

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
            ("process function", self.process and self.process.process_class),
            *(("function", function.function) for function in self.functions.values()),
        )
        return tuple(UserCode(role, target) for role, target in named if target)

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
    def emission(self) -> Emission:
        """Return the watermarks of the stream for the engines; in a union, each source has its own strategy."""
        if not self.source.parts or self.watermark.job_logs:
            return self.watermark.spec()
        sources = [
            UnionSource(str(part.name), self.watermark_of(part).spec().strategy) for part in self.source.parts
        ]
        return Emission.from_sources(sources, self.watermark.topology)

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
        return source | {"time": self.time.value}

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

    def _job_problems(self) -> Iterator[str]:
        """Yield the settings that a replay of a job of Structured Streaming cannot have."""
        strategy = f"watermark.strategy = {self.watermark.strategy.value!r}"
        if isinstance(self.window, SessionWindow | CumulateWindow):
            yield f"window.kind must be tumbling or sliding with {strategy}, got {self.window.kind!r}"
        if self.time is not TimeKind.EVENT:
            yield f"time must be event with {strategy}, got {self.time.value!r}"
        if self.code_columns is not None:
            yield f"{strategy} is not possible with [{'job' if self.job else 'process'}]"
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
        given = [name for name in ("aggregates", "job", "process") if getattr(self, name)]
        if not given:
            known = "must have at least one" if "aggregates" in self.model_fields_set else "is missing"
            return [f"aggregates {known}"]
        if len(given) > 1:
            return [f"only one of aggregates, job, and process can compute the rows, got {' and '.join(given)}"]
        problems = []
        without_meaning = [name for name in ("derive_after", "having") if getattr(self, name)]
        if self.code_columns is not None and without_meaning:
            problems.append(f"{without_meaning[0]} has no meaning with [{given[0]}], which returns the rows")
        if self.code_columns is not None and self.quality.verify:
            problems.append(
                f"quality.verify has no meaning with [{given[0]}], which the reference engine cannot run"
            )
        if self.code_columns is not None and self.backfill.keep_firings:
            problems.append(f"backfill.keep_firings has no meaning with [{given[0]}]")
        if self.process is None:
            return problems
        if not isinstance(self.window, TumblingWindow):
            problems.append(f"window.kind must be tumbling with [process], got {self.window.kind!r}")
        if self.backfill.publish != "final":
            problems.append(f"backfill.publish has no meaning with [process], got {self.backfill.publish!r}")
        if self.lateness.allowed:
            allowed = duration_text(self.lateness.allowed)
            problems.append(
                f"lateness.allowed has no meaning with [process], which gets all records, got {allowed}"
            )
        return problems

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
        section = "aggregates" if self.code_columns is None else f"{'job' if self.job else 'process'}.columns"
        problems += [f"{section}.{name} {taken}" for name in sorted({*key, *reserved} & set(self.value_names))]
        others = {*key, *reserved, *self.aggregates}
        problems += [f"derive_after.{name} {taken}" for name in sorted(others & set(self.derive_after))]
        return problems
