"""Compute the rows of a job: a PySpark function of the user gets records with their fates, and returns the rows.

The function is called once per kind of pane: first, live, and final. If no record of the chunks is late, the three
kinds have the same records, so it is called once. Records are counted here, independent of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, TimestampType

from backstream.chunks.attempt import Attempt
from backstream.definition.model import Definition
from backstream.definition.result_sections import Job
from backstream.errors import UserCodeError
from backstream.eventtime.records import Fate
from backstream.runs.table_schemas import PANES_KEPT, RECORD_COUNT, pane_count_column
from backstream.spark.schemas import int64_literal, parse_type
from backstream.spark.session import ship_package
from backstream.spark.staging import spark_type_of_name
from backstream.spark.windows.aggregation import WINDOW
from backstream.user_code import UserCode

IN_FINAL = "job__in_final"
"""The column that is true if the window of a record is one of the windows of all records."""
_PANE, _ROW = "job__pane", "job__row"
_WINDOW_TIMES = ("window_start", "window_end")
_TIMING, _INDEX = "pane_timing", "pane_index"
_MAX_FACTS, _MAX_PLACES = 10, 3

Keep = Callable[[DataFrame], DataFrame]


class JobResult(NamedTuple):
    """The rows of a job as `spark.windows.aggregation` returns them, and the windows without a row."""

    values: DataFrame
    skipped: DataFrame
    """The columns of `skipped_windows_table`."""
    skipped_records: int
    """The number of records in skipped final panes."""


@dataclass(frozen=True, slots=True)
class JobCall:
    """A job of a definition, about to run for the chunks of an attempt."""

    definition: Definition
    job: Job
    attempt: Attempt
    is_replay: bool
    types: Mapping[str, DataType]
    """The types of the columns in the published table."""

    @classmethod
    def from_attempt(cls, definition: Definition, job: Job, attempt: Attempt, *, is_replay: bool) -> JobCall:
        """Return the job of an attempt."""
        columns = attempt.plan.tables[""].columns
        types = {name: spark_type_of_name(kind) for name, kind, _, _ in columns}
        return cls(definition, job, attempt, is_replay, types)

    @property
    def code(self) -> UserCode:
        """The function of the user."""
        return UserCode("job", self.job.function)

    @property
    def keys(self) -> Sequence[str]:
        """The key columns."""
        return self.definition.source.key

    def compute(self, members: DataFrame, keep: Keep) -> JobResult:
        """Call the function, check the rows that it returns, and count the windows that it skips. Runs jobs.

        Args:
            members: one row per record and owned window; with `pane_timing`, `pane_index`, and `IN_FINAL`.
            keep: persists a frame until the chunks are done.

        Raises:
            SpecError: when the function can't be imported.
            UserCodeError: when it fails, or returns other rows than it must.
        """
        function = self.code.load_function(1, self.job.kwargs)
        ship_package(members.sparkSession.sparkContext, self.job.function)
        members = keep(members)
        panes = PANES_KEPT if self.is_replay and _has_late_records(members) else ("final",)
        returned = [self._call(function, members, pane) for pane in panes]
        joined = keep(self._join(members, returned, panes))
        skipped_records = self._require_valid_rows(joined)
        values = self._panes(joined) if self.is_replay else self._windows(joined)
        return JobResult(values, self._panes_without_rows(joined), skipped_records)

    def _call(self, function: Callable[..., object], members: DataFrame, pane: str) -> DataFrame:
        """Return the checked rows of one kind of pane: keys, window in ms, `_PANE`, and `_ROW` with the values."""
        times = {name: F.timestamp_millis(f"{name}_ms") for name in _WINDOW_TIMES}
        frame = members.where(_is_in_pane(pane)).withColumns(times).drop(*WINDOW, IN_FINAL)
        with self.code.explain_errors(f"in {self.attempt}"):
            rows = function(frame, **self.job.kwargs)
        if not isinstance(rows, DataFrame):
            msg = f"{self.code} must return a DataFrame, got {type(rows).__name__}"
            raise UserCodeError(msg)
        self._require_columns(rows, {name: members.schema[name].dataType for name in self.keys})
        values = F.struct(*(F.col(name).cast(self.types[name]).alias(name) for name in self.job.columns))
        window_ms = (F.unix_millis(name).alias(f"{name}_ms") for name in _WINDOW_TIMES)
        return rows.select(*self.keys, *window_ms, F.lit(pane).alias(_PANE), values.alias(_ROW))

    def _require_columns(self, rows: DataFrame, keys: Mapping[str, DataType]) -> None:
        """Check that the declared columns, the key, and the window have their types; other columns are ignored."""
        declared = {name: parse_type(text) for name, text in self.job.columns.items()}
        expected = {
            **keys,
            **dict.fromkeys(_WINDOW_TIMES, cast("DataType", TimestampType())),
            **declared,
        }
        types = {field.name: field.dataType for field in rows.schema.fields}
        wrong = [
            f"  {name}: expected {kind.simpleString()}, got {_type_text(types.get(name))}"
            for name, kind in expected.items()
            if types.get(name) != kind
        ]
        if wrong:
            msg = "\n".join(
                [
                    f"{self.code} returned other columns than job.columns declares:",
                    *wrong[:_MAX_FACTS],
                    "\nhint: keep the key and the window, and cast the other columns or change job.columns",
                ]
            )
            raise UserCodeError(msg)

    def _join(self, members: DataFrame, returned: Sequence[DataFrame], panes: Sequence[str]) -> DataFrame:
        """Return one row per key and window, with the number of records and the returned rows of each pane."""
        by = [*self.keys, *WINDOW]
        counts = members.groupBy(*by).agg(
            *(F.count_if(_is_in_pane(pane)).alias(_count(pane)) for pane in PANES_KEPT)
        )
        rows = counts
        for frame in returned:
            rows = rows.unionByName(frame, allowMissingColumns=True)
        of_pane = {pane: F.col(_PANE) == F.lit(pane if len(panes) > 1 else "final") for pane in PANES_KEPT}
        return rows.groupBy(*by).agg(
            *(F.coalesce(F.sum(_count(pane)), int64_literal(0)).alias(_count(pane)) for pane in PANES_KEPT),
            *(F.count_if(is_pane).alias(_rows(pane)) for pane, is_pane in of_pane.items()),
            *(
                F.any_value(F.when(is_pane, F.col(_ROW)), ignoreNulls=True).alias(pane)
                for pane, is_pane in of_pane.items()
            ),
        )

    def _require_valid_rows(self, joined: DataFrame) -> int:
        """Check that each returned row has a window with records, and is its only one; return the skipped records.

        Raises:
            UserCodeError: with the first wrong rows.
        """
        is_unknown, is_repeated = F.expr("false"), F.expr("false")
        for pane in PANES_KEPT:
            is_unknown |= (F.col(_rows(pane)) > 0) & (F.col(_count(pane)) == 0)
            is_repeated |= F.col(_rows(pane)) > 1
        skipped = F.sum(F.when(F.col(_rows("final")) == 0, F.col(_count("final"))).otherwise(F.lit(0)))
        with self.code.explain_errors(f"in {self.attempt}", is_remote=True):
            ((unknown, repeated, records),) = joined.agg(
                F.count_if(is_unknown), F.count_if(is_repeated), F.coalesce(skipped, F.lit(0))
            ).collect()
        if unknown:
            facts = self._first_places(joined.where(is_unknown))
            msg = (
                f"{self.code} returned rows of {unknown:,} windows without records\n  {self.attempt}\n{facts}\n\n"
                "hint: keep window_start and window_end of the records"
            )
            raise UserCodeError(msg)
        if repeated:
            facts = self._first_places(joined.where(is_repeated))
            msg = (
                f"{self.code} returned {repeated:,} keys and windows more than once\n  {self.attempt}\n{facts}\n\n"
                f"hint: group by {', '.join([*self.keys, *_WINDOW_TIMES])}"
            )
            raise UserCodeError(msg)
        return int(records)

    def _first_places(self, rows: DataFrame) -> str:
        first = rows.orderBy(*WINDOW, *self.keys).limit(_MAX_PLACES)
        places = first.select(*self.keys, *(F.timestamp_millis(name).cast("string") for name in WINDOW)).collect()
        names = [*self.keys, *_WINDOW_TIMES]
        return "\n".join(
            "  " + ", ".join(f"{name} {value}" for name, value in zip(names, place, strict=True))
            for place in places
        )

    def _panes(self, joined: DataFrame) -> DataFrame:
        """Return the columns of `spark.windows.aggregation.panes_of_rows`."""
        values = {f"{name}__{pane}": F.col(pane)[name] for name in self.job.columns for pane in PANES_KEPT}
        counts = {
            pane_count_column(pane): F.when(F.col(_rows(pane)) > 0, F.col(_count(pane))).otherwise(
                int64_literal(0)
            )
            for pane in PANES_KEPT
        }
        late_firings = {"late_firings": F.col(_count("live")) - F.col(_count("first"))}
        has_row = F.greatest(*(F.col(_rows(pane)) for pane in PANES_KEPT)) > F.lit(0)
        columns = {**values, **counts, **late_firings}
        return joined.where(has_row).select(
            *self.keys, *WINDOW, *(column.alias(name) for name, column in columns.items())
        )

    def _windows(self, joined: DataFrame) -> DataFrame:
        values = [F.col("final")[name].alias(name) for name in self.job.columns]
        count = F.col(_count("final")).alias(RECORD_COUNT)
        return joined.where(F.col(_rows("final")) > F.lit(0)).select(*self.keys, *WINDOW, *values, count)

    def _panes_without_rows(self, joined: DataFrame) -> DataFrame:
        """Return the panes with records but without a row."""
        counts = {
            pane: F.when(F.col(_rows(pane)) == 0, F.col(_count(pane))).otherwise(int64_literal(0))
            for pane in PANES_KEPT
        }
        if not self.is_replay:
            counts |= dict.fromkeys(("first", "live"), int64_literal(0))
        columns = [count.alias(pane_count_column(pane)) for pane, count in counts.items()]
        is_skipped = F.greatest(*(F.col(pane_count_column(pane)) for pane in PANES_KEPT)) > F.lit(0)
        return joined.select(*self.keys, *WINDOW, *columns).where(is_skipped)


def add_pane_index(members: DataFrame, keys: Sequence[str], order: Sequence[str], *, is_late: bool) -> DataFrame:
    """Add `pane_index` by `pane_timing`: the first pane of its window that has the record; null if none has it."""
    on_time = F.when(F.col(_TIMING) == F.lit(Fate.ON_TIME), int64_literal(0))
    if not is_late:
        return members.withColumn(_INDEX, on_time)
    of_window = Window.partitionBy(*keys, *WINDOW)
    is_late_record = F.coalesce(F.col(_TIMING) == F.lit(Fate.LATE), F.expr("false"))
    has_on_time = F.max(F.coalesce(F.col(_TIMING) == F.lit(Fate.ON_TIME), F.expr("false")).cast("long")).over(
        of_window
    )
    so_far = of_window.orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    late = F.sum(is_late_record.cast("long")).over(so_far) + has_on_time - F.lit(1)
    return members.withColumn(_INDEX, on_time).withColumn(
        _INDEX, F.when(is_late_record, late.cast(LongType())).otherwise(F.col(_INDEX))
    )


def _has_late_records(members: DataFrame) -> bool:
    """Return whether a record is not in each pane of its window. Runs a job."""
    is_in_all = _is_in_pane("first") & _is_in_pane("final")
    return bool(members.where(~is_in_all).limit(1).count())


def _is_in_pane(pane: str) -> Column:
    """Return whether a pane of this kind has the record; never null."""
    if pane == "final":
        return F.col(IN_FINAL)
    is_on_time = F.coalesce(F.col(_TIMING) == F.lit(Fate.ON_TIME), F.expr("false"))
    return is_on_time if pane == "first" else F.col(_INDEX).isNotNull()


def _count(pane: str) -> str:
    return f"job__records_{pane}"


def _rows(pane: str) -> str:
    return f"job__rows_{pane}"


def _type_text(kind: DataType | None) -> str:
    return kind.simpleString() if kind else "no such column"
