"""Describe a join, and replay it over two recorded streams."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from backstream.eventtime.emission import Inputs
from backstream.eventtime.joins.interval_join import IntervalJoin, JoinBounds, SqlIntervalJoin
from backstream.eventtime.joins.operator import JoinedRow, JoinOperator, JoinType, Matches, match_all
from backstream.eventtime.joins.temporal_join import TemporalJoin
from backstream.eventtime.joins.window_join import WindowJoin, join_panes
from backstream.eventtime.records import Record
from backstream.eventtime.watermarks import Watermarks
from backstream.eventtime.window_operator import fire_windows
from backstream.eventtime.windows import WindowSpec


class JoinKind(StrEnum):
    """The times that partners have in common."""

    WINDOW = "window"
    """Records of the same window."""
    INTERVAL = "interval"
    """Records whose event times differ by a bounded duration."""
    TEMPORAL = "temporal"
    """A record, and the version of the right side that was valid at its event time."""


class JoinSemantics(StrEnum):
    """The system whose rules decide which rows the live job emitted."""

    FLINK_DATASTREAM = "flink_datastream"
    """Flink's DataStream API: `coGroup` and `join` of windows, and `intervalJoin`."""
    FLINK_SQL = "flink_sql"
    """Flink SQL."""


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """A join. `bounds` are those of an interval join, `matches` is its condition besides keys and times."""

    kind: JoinKind
    join_type: JoinType
    semantics: JoinSemantics
    bounds: JoinBounds | None = None
    matches: Matches = match_all

    @property
    def inputs(self) -> Inputs:
        """The way in which both sources reach the join."""
        is_co_group = self.kind is JoinKind.WINDOW and self.semantics is JoinSemantics.FLINK_DATASTREAM
        return Inputs.GATE if is_co_group else Inputs.OPERATOR


class JoinResults(NamedTuple):
    """The rows of a join, and the records that it dropped; those of a window join of SQL once per window."""

    rows: list[JoinedRow]
    dropped: list[int]


def replay_join(
    spec: JoinSpec,
    records: Sequence[Record],
    watermarks: Watermarks,
    right: Collection[int],
    window: WindowSpec,
    allowed_lateness_ms: int = 0,
) -> JoinResults:
    """Return the rows of a join of two streams, in the order in which a live job emits them.

    Args:
        spec: the join.
        records: the records of both sides, in arrival order.
        watermarks: the watermarks of the join.
        right: the partitions of the right side.
        window: the windows of a window join.
        allowed_lateness_ms: the allowed lateness of a window join of the DataStream API.
    """
    if spec.inputs is Inputs.GATE:
        results = fire_windows(records, watermarks, window, allowed_lateness_ms)
        rows = join_panes(results.panes, records, right, spec.join_type, spec.matches)
        return JoinResults(list(rows), results.dropped)
    operator = _new_operator(spec, right, window)
    operator.run(records, watermarks)
    return JoinResults(operator.rows, operator.dropped)


def _new_operator(spec: JoinSpec, right: Collection[int], window: WindowSpec) -> JoinOperator:
    settings = (right, spec.join_type, spec.matches)
    match spec.kind:
        case JoinKind.WINDOW:
            return WindowJoin(*settings, spec=window)
        case JoinKind.TEMPORAL:
            return TemporalJoin(*settings)
        case JoinKind.INTERVAL if spec.bounds:
            kind = SqlIntervalJoin if spec.semantics is JoinSemantics.FLINK_SQL else IntervalJoin
            return kind(*settings, bounds=spec.bounds)
    raise ValueError(spec.kind)
