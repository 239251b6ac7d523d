"""Define the sections `[backfill]`, `[publish]`, `[quality]`, and `[approval]` of a definition."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    model_validator,
)

from backstream.definition.values import Name, NonNegativeDuration, PositiveDuration, Section, require_partitions
from backstream.eventtime.instants import DAY_MS
from backstream.runs.plan import Mode


class Backfill(Section):
    """Settings of runs: the schedule, the chunks, the engine, and the published pane."""

    schedule: str = "@daily"
    """The cron expression of the DAG `backfill_<name>`; its intervals must be whole days in UTC."""
    chunk: PositiveDuration = DAY_MS
    """The length of one unit of work: whole days, and a multiple of the window."""
    max_chunks: int = Field(default=10_000, ge=1)
    """Maximum number of chunks of a run; planning rejects a longer range."""
    max_events_per_job: int = Field(default=4_000_000, ge=0)
    """Maximum number of events of adjacent chunks that run as one Spark job; 0: one job per chunk."""
    engine: Literal["auto", "spark", "native"] = "auto"
    """Engine that computes the windows. `native` is DuckDB inside Spark tasks, which supports most definitions.
    `auto` uses it for these definitions, and Spark for the others. With `spark`, Spark also prepares all files."""
    runner: Literal["auto", "spark", "local"] = "auto"
    """Place of native tasks: `spark`, or `local` for processes of this machine, which need no Java. `auto` is
    Spark; on a command line without Java or PySpark, it is `local`."""
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


class Publish(Section):
    """A table of yours that gets each published range too, in one commit, and keeps its layout and other rows."""

    table: Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)+$")]
    """The table in the catalog, with its namespace, e.g., `sales.hourly`."""
    columns: dict[str, str] = {}
    """Your column by column of the result, where their names differ, e.g., `{window_start = "hour"}`."""


class Limits(Section):
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


class Expected(Section):
    """Expected events: Parquet files with one row per event, e.g., a timetable or an order book."""

    path: str
    """The folder of the files. `${NAME}` is replaced by an environment variable."""
    event_time: str
    """The column of the event time."""
    partition: str | None = None
    """The column of the source partition."""


class Bands(Section):
    """Bands of usual values by the time of the week, from past runs."""

    width: float = Field(default=5.0, gt=0)
    """Distance from the median to the edge of a band, in standard deviations, which the MAD estimates."""
    min_weeks: int = Field(default=4, ge=4)
    """Past weeks that a band needs at least; a window with fewer has only the fixed limits."""
    max_weeks: int = Field(default=13, ge=4)
    """Weeks before the range whose published runs are read."""
    outside_ratio: float = Field(default=0.1, ge=0, le=1)
    """Share of the windows of a run that may be outside their band."""


class Quality(Section):
    """Expectations and limits of the quality gate."""

    suite: Name = "window_audit"
    """The suite of expectations."""
    late_ratio: Limits = Limits(warn=0.05, fail=0.25)
    """The share of late and dropped events."""
    dropped_ratio: Limits = Limits(warn=0.05, fail=0.25)
    """The share of dropped events."""
    missing_ratio: Limits = Limits(warn=0.0, fail=0.25)
    """Share of expected windows (per source partition) without events."""
    quarantined_ratio: Limits = Limits(warn=0.0, fail=0.01)
    """Unreadable records as a share of all records in the files of a run."""
    inexact_ratio: Limits = Limits(warn=0.0, fail=0.01)
    """Numbers in JSON and CSV files that the declared type of their column cannot hold, as a share of all records
    of a source. The column with the largest share counts."""
    implausible_ratio: Limits = Limits(warn=0.0, fail=0.01)
    """Share of all records of the source whose times are far from all others: of another unit, or placeholders."""
    duplicate_ratio: Limits = Limits(warn=0.05, fail=1.0)
    """Share of the records read that are duplicates by `source.deduplicate_on`."""
    undecided_ratio: Limits = Limits(warn=0.0, fail=0.01)
    """Share of the records read of which lost logs of a job would show whether they were late: those that
    `watermark.undecided` lets count or drops."""
    without_id_ratio: Limits = Limits(warn=0.0, fail=1.0)
    """Share of the records read that have no id: all columns of `source.deduplicate_on` are null."""
    rows_ratio: float = Field(default=0.5, ge=0)
    """Minimum of written rows per replaced row; below it, nothing is published."""
    expected_partitions: Annotated[tuple[str, ...] | Literal["observed"], BeforeValidator(require_partitions)] = (
        "observed"
    )
    """Source partitions that must deliver records; `observed`: those with records in the range."""
    verify: int = Field(default=0, ge=0)
    """The number of sampled rows that the reference engine recomputes before a publication; 0: none. If one
    differs, nothing is published."""
    expected: Expected | None = None
    """The expected events; by default no check."""
    bands: Bands = Bands()
    """The comparison of each window with the same time of the week in past runs."""

    @property
    def named_partitions(self) -> tuple[str, ...]:
        """The source partitions that must deliver, without which no watermark advances; none if observed."""
        return () if self.expected_partitions == "observed" else self.expected_partitions


class Approval(Section):
    """Approval before publication."""

    when: Literal["never", "warn", "always", "restatement"] = "never"
    """`warn`: unless the verdict is pass; `restatement`: if the run replaces published rows."""
    timeout: PositiveDuration = DAY_MS
    """Time after which the publication is rejected without an answer."""
