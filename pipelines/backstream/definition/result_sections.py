"""Define the sections of a definition that compute results: `[window]`, and the code of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import (
    Field,
    model_validator,
)

from backstream.definition.values import Duration, Name, PositiveDuration, Section, Sql, UserCodeName, WindowZone
from backstream.eventtime.time_zones import find_zone
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling


class Job(Section):
    """Job: your own PySpark function that computes the rows to publish, in place of `[aggregates]`."""

    function: UserCodeName
    """The function: `package.module:function`. It gets a DataFrame, and returns one."""
    kwargs: dict[str, Any] = {}
    """Keyword arguments of the function."""
    columns: dict[Name, str] = Field(min_length=1)
    """The columns besides key and window that the function returns: names and types of Spark SQL, e.g.,
    `score = "double"`."""
    reads: tuple[str, ...] | None = None
    """The columns of the source that the function gets; by default all."""


class Process(Section):
    """Process function: a Python class with state per key and timers, as Flink's `KeyedProcessFunction`."""

    process_class: UserCodeName = Field(alias="class")
    """The class: `package.module:Class`. Each key has its own instance."""
    kwargs: dict[str, Any] = {}
    """Keyword arguments of the class."""
    columns: dict[Name, str] = Field(min_length=1)
    """The columns of an emitted row: a name and a type of Spark SQL, e.g., `alert = "string"`."""
    reads: tuple[str, ...] | None = None
    """The columns of the source that a record has; by default all."""
    state_reach: PositiveDuration | None = None
    """Reach of the state and the timers of a key: records that are further from a chunk have no effect on its
    rows. By default there is no limit, and each run reads the whole source."""


class RecordFilter(Section):
    """Condition of the records that windows get: other records only move the watermark, as after a `WHERE`."""

    where: Sql
    """The condition in SQL over the columns of the source, e.g., `kind = 'click'`."""


class Having(Section):
    """Condition for publication: windows of keys that don't meet it are computed, but not published."""

    condition: Sql
    """The condition in Spark SQL over the columns of the result, e.g., `orders >= 10`."""


class Top(Section):
    """Top-N: of the rows of each window, only the first ones in an order are published."""

    n: int = Field(ge=1)
    """The greatest rank that is published."""
    by: Sql
    """The order, as after `ORDER BY`: expressions in Spark SQL over the columns of the result, e.g.,
    `revenue desc, shop`."""
    partition_by: tuple[str, ...] = ()
    """Key columns: rows with other values have ranks of their own. By default, all rows of a window compete."""
    ties: Literal["break", "keep"] = "break"
    """The ranks of rows that are equal in `by`. `break`: they follow each other in the order of the key, as with
    `ROW_NUMBER`. `keep`: they have one rank, as with `RANK`, so more than `n` rows can be published."""
    rank: Name | None = None
    """The name of a column with the rank of a published row; by default, there is none."""

    def over(self, partition: Sequence[str] = (), tie_breakers: Sequence[str] = ()) -> str:
        """Return the rank of a row in SQL.

        Args:
            partition: names of columns; rows with other values have ranks of their own.
            tie_breakers: names of columns that follow the order, if ties are broken.
        """
        function, breakers = ("rank", ()) if self.ties == "keep" else ("row_number", tie_breakers)
        partitions, last = ([f"`{name.replace('`', '``')}`" for name in names] for names in (partition, breakers))
        by = f"PARTITION BY {', '.join(partitions)} " if partitions else ""
        return f"{function}() OVER ({by}ORDER BY {', '.join([self.by, *last])})"


class UserFunction(Section):
    """Custom function for SQL: a Python function, or a class on Spark's class path."""

    function: UserCodeName | None = None
    """A Python function: `package.module:function`."""
    java_class: str | None = None
    """A class that implements a function of Spark's `org.apache.spark.sql.api.java`, e.g., `UDF1`."""
    returns: str
    """The type of the result in Spark SQL, e.g., `double`."""
    kind: Literal["record", "pandas", "aggregate"] = "record"
    """The arguments of a Python function. `record`: the values of one record; `pandas`: a series of the values of
    several records per argument; `aggregate`: a series of the values of all records of a window per argument."""

    @model_validator(mode="after")
    def _check_one_language(self) -> UserFunction:
        if (self.function is None) == (self.java_class is None):
            msg = "needs either function or java_class"
            raise ValueError(msg)
        if self.java_class and self.kind != "record":
            msg = f"kind = {self.kind!r} needs a Python function"
            raise ValueError(msg)
        return self


class TumblingWindow(Section):
    """Tumbling window: `kind = "tumbling"`."""

    kind: Literal["tumbling"]
    """The kind of window."""
    size: PositiveDuration
    """The length of a window."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""
    time_zone: WindowZone | None = None
    """The time zone of windows in local time, as in Flink SQL, e.g., `"Europe/Berlin"`; by default UTC."""

    def spec(self) -> Tumbling:
        """Return the window for the engines."""
        return Tumbling(self.size, self.offset, find_zone(self.time_zone))


class SlidingWindow(Section):
    """Sliding window: `kind = "sliding"`."""

    kind: Literal["sliding"]
    """The kind of window."""
    size: PositiveDuration
    """The length of a window."""
    slide: PositiveDuration
    """The time between the starts of two windows."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""
    time_zone: WindowZone | None = None
    """The time zone of windows in local time, as in Flink SQL, e.g., `"Europe/Berlin"`; by default UTC."""

    def spec(self) -> Sliding:
        """Return the window for the engines."""
        return Sliding(self.size, self.slide, self.offset, find_zone(self.time_zone))


class SessionWindow(Section):
    """Session window, `kind = "session"`: events of a key that are at most a gap apart are in the same session."""

    kind: Literal["session"]
    """The kind of window."""
    gap: PositiveDuration
    """The longest pause within a session."""
    time_zone: WindowZone | None = None
    """The time zone of windows in local time, as in Flink SQL, e.g., `"Europe/Berlin"`; by default UTC."""

    def spec(self) -> Session:
        """Return the window for the engines."""
        return Session(self.gap, find_zone(self.time_zone))


class CumulateWindow(Section):
    """Cumulating window, `kind = "cumulate"`: windows with the same start, which grow by a step up to the size."""

    kind: Literal["cumulate"]
    """The kind of window."""
    size: PositiveDuration
    """The maximum length of a window, a multiple of `step`."""
    step: PositiveDuration
    """The difference between the lengths of two windows."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""
    time_zone: WindowZone | None = None
    """The time zone of windows in local time, as in Flink SQL, e.g., `"Europe/Berlin"`; by default UTC."""

    def spec(self) -> Cumulate:
        """Return the window for the engines."""
        return Cumulate(self.size, self.step, self.offset, find_zone(self.time_zone))
