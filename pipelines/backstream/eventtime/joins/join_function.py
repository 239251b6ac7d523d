"""Run the rule of a join as a process function over the records of both sides, one instance per key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from backstream.eventtime.emission import Inputs
from backstream.eventtime.joins.interval_join import IntervalJoin, JoinBounds, SqlIntervalJoin
from backstream.eventtime.joins.rule import SIDE, Comparison, JoinRule, JoinType, Side, SideRecord
from backstream.eventtime.joins.temporal_join import TemporalJoin
from backstream.eventtime.joins.window_join import WindowJoin
from backstream.eventtime.process_functions import Context
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling, WindowSpec


class JoinKind(StrEnum):
    """The relation between the times of partners."""

    WINDOW = "window"
    """Both are in the same window."""
    INTERVAL = "interval"
    """Their event times differ by a bounded duration."""
    TEMPORAL = "temporal"
    """The right record is the version that was valid at the event time of the left one."""


class JoinSemantics(StrEnum):
    """The system whose rules decide which rows the live job emitted."""

    FLINK_DATASTREAM = "flink_datastream"
    """Flink's DataStream API: `coGroup` and `join` of windows, and `intervalJoin`."""
    FLINK_SQL = "flink_sql"
    """Flink SQL."""


def inputs_of(kind: JoinKind, semantics: JoinSemantics) -> Inputs:
    """Return the way in which both sources reach a join: DataStream's `coGroup` is behind a gate."""
    is_co_group = kind is JoinKind.WINDOW and semantics is JoinSemantics.FLINK_DATASTREAM
    return Inputs.GATE if is_co_group else Inputs.OPERATOR


_WINDOWS: Mapping[str, Callable[..., WindowSpec]] = {
    kind.__name__: kind for kind in (Tumbling, Sliding, Cumulate, Session)
}


class JoinFunction:
    """A join of two sources as a process function. A record names its side in the column `SIDE`."""

    def __init__(
        self,
        kind: str,
        join_type: str,
        semantics: str,
        columns: Sequence[Sequence[str]],
        conditions: Sequence[Comparison] = (),
        bounds_ms: tuple[int, int] = (0, 0),
        window: tuple[str, Mapping[str, int], int] = ("Tumbling", {"size_ms": 1}, 0),
    ) -> None:
        """Create a join without records.

        Args:
            kind: a `JoinKind`.
            join_type: a `JoinType`.
            semantics: a `JoinSemantics`.
            columns: the columns of the left and of the right side in a row.
            conditions: the conditions besides the key and the times.
            bounds_ms: the inclusive bounds of an interval join.
            window: the class of the windows of a window join, its fields, and the allowed lateness in ms.
        """
        self._columns = columns
        is_sql = semantics == JoinSemantics.FLINK_SQL
        rows = (JoinType(join_type), conditions)
        self.rule: JoinRule
        if kind == JoinKind.TEMPORAL:
            self.rule = TemporalJoin(*rows)
        elif kind == JoinKind.INTERVAL:
            self.rule = (SqlIntervalJoin if is_sql else IntervalJoin)(*rows, bounds=JoinBounds(*bounds_ms))
        else:
            name, fields, allowed_lateness_ms = window
            self.rule = WindowJoin(*rows, _WINDOWS[name](**fields), allowed_lateness_ms, drops_per_window=is_sql)

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Process a record of a side."""
        side = Side(record[SIDE])
        values = {name: record[name] for name in self._columns[side]}
        self.rule.has_null_key = None in (context.key if isinstance(context.key, tuple) else (context.key,))
        self.rule.on_record(SideRecord(context.timestamp_ms, side, values), context)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Process a timer."""
        self.rule.on_timer(timestamp_ms, context)
