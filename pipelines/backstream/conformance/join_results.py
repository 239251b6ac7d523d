"""Run recorded joins by the rules in plain Python, and compare each row and its cause with Flink's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any, NamedTuple

from backstream.conformance.cases import Case, Pairs, RecordedJoin, UnsupportedCaseError
from backstream.eventtime.joins.interval_join import SqlIntervalJoin
from backstream.eventtime.joins.join_function import JoinFunction, JoinKind
from backstream.eventtime.joins.rule import SIDE, Side
from backstream.eventtime.process_functions import Context, Emitted
from backstream.eventtime.records import Record
from backstream.eventtime.timers import ProcessOperator
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.watermarks import Watermarks

JOIN_COLUMNS = (("left_id", "left_value"), ("right_id", "right_value"))
"""The columns of the sides of a recorded join: the number of the record, and its value."""


def _join_options(case: Case, join: RecordedJoin) -> dict[str, Any]:
    """Return the arguments of the `JoinFunction` of a recorded join."""
    return {
        "kind": join.kind.value,
        "join_type": join.join_type.value,
        "semantics": join.semantics.value,
        "columns": JOIN_COLUMNS,
        "conditions": [(JOIN_COLUMNS[0][1], "<", JOIN_COLUMNS[1][1])] if join.has_condition else [],
        "bounds_ms": join.bounds_ms,
        "window": (type(case.window).__name__, asdict(case.window), case.allowed_lateness_ms),
    }


def require_independent_keys(case: Case, join: RecordedJoin) -> None:
    """Check that the rows of a case do not depend on the keys that share a subtask, since those of a run do not.

    Raises:
        UnsupportedCaseError: when they depend on it.
    """
    rows = [
        sorted(str(row) for row, _, _ in JoinReplay.from_case(case, join, is_one_subtask=is_one).trace)
        for is_one in (True, False)
    ]
    if rows[0] != rows[1]:
        msg = "an interval join of Flink SQL in which the parallelism decides about a pair"
        raise UnsupportedCaseError(msg)


class _RecordedRow(NamedTuple):
    """A row and its cause. `by` is the number of a record, or of an input's watermark as Flink counts them."""

    left: int | None
    right: int | None
    time_ms: int | None
    kind: str
    by: int | None
    after: int


@dataclass(slots=True)
class _Traced:
    """A process function whose rows are kept with the record or the watermark that caused them."""

    function: JoinFunction
    trace: list[tuple[Emitted, int, bool]] = field(default_factory=list)
    """Rows, each with the number of a record, or with a watermark; true: it is a record."""

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        self.function.process_element(record, context)
        self._keep(context, record["number"], is_record=True)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        self.function.on_timer(timestamp_ms, context)
        self._keep(context, context.current_watermark_ms, is_record=False)

    def _keep(self, context: Context, cause: int, *, is_record: bool) -> None:
        self.trace += [(row, cause, is_record) for row in context.emitted]
        context.emitted.clear()


@dataclass(frozen=True, slots=True)
class JoinReplay:
    """The result of the reference for a recorded join."""

    watermarks: Watermarks
    trace: list[tuple[Emitted, int, bool]]

    @classmethod
    def from_case(cls, case: Case, join: RecordedJoin, *, is_one_subtask: bool = True) -> JoinReplay:
        """Return the result for a case; in a recorded job, one subtask has all keys."""
        watermarks = compute_watermarks(case.records, case.emission, case.clock, case.partitions)
        right = set(case.emission.sources[1].partitions)
        trace: list[tuple[Emitted, int, bool]] = []
        expired_ms: dict[Side, int] = {}
        options, numbers = _join_options(case, join), count()

        def new_function() -> _Traced:
            function = JoinFunction(**options)
            if is_one_subtask and isinstance(function.rule, SqlIntervalJoin):
                function.rule.expired_ms = expired_ms
            return _Traced(function, trace)

        def fields_of(record: Record) -> dict[str, Any]:
            side, number = Side(record.source_partition in right), next(numbers)
            values = dict(zip(JOIN_COLUMNS[side], (number, record.value), strict=True))
            return {"number": number, SIDE: side, **values}

        ProcessOperator(new_function, fields_of).run(case.records, watermarks)
        return cls(watermarks, trace)

    def pairs(self, case: Case, flink: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Flink: watermarks, rows with their causes, and late records."""
        rows = [self._to_recorded(case, *traced, flink) for traced in self.trace if traced[0].tag is None]
        late = [number for row, number, _ in self.trace if row.tag is not None]
        combined = [(event["wm"], event["after"]) for event in flink["combined"]]
        return {
            "watermarks": (combined, [(event.watermark_ms, event.after) for event in self.watermarks.events]),
            "watermark in force": (flink["record_wm"], self.watermarks.in_force_ms),
            "rows": (sorted(_list_rows(flink), key=str), sorted(rows, key=str)),
            "late records": (sorted(flink.get("late", [])), sorted(set(late))),
            "number of late records": (_count_late(flink), len(late)),
        }

    def _to_recorded(
        self, case: Case, emitted: Emitted, cause: int, is_record: bool, flink: Mapping[str, Any]
    ) -> _RecordedRow:
        """Return a row in the form of a recording, in which the watermarks of the inputs have numbers."""
        row, time_ms = emitted.row, None
        if case.join and case.join.kind is JoinKind.WINDOW:
            time_ms = emitted.timestamp_ms
        pair = (row.get(JOIN_COLUMNS[0][0]), row.get(JOIN_COLUMNS[1][0]), time_ms)
        if is_record:
            return _RecordedRow(*pair, "record", cause, cause)
        by_value = {event["wm"]: (event["by"], event["after"]) for event in flink["combined"]}
        # A difference of the watermarks themselves is reported first.
        return _RecordedRow(*pair, "watermark", *by_value.get(cause, (None, -1)))


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The rows of a run for a recorded join, and the numbers of the records in its side output."""

    rows: list[tuple[int | None, int | None, int]]
    """Left and right record, and the time of the row."""
    dropped: list[int]

    def pairs(self, case: Case, flink: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Flink: each row, in a window join with its window, and each late record."""
        has_windows = case.join is not None and case.join.kind is JoinKind.WINDOW
        rows = [(left, right, time_ms if has_windows else None) for left, right, time_ms in self.rows]
        return {
            "rows": (sorted((row[:3] for row in _list_rows(flink)), key=str), sorted(rows, key=str)),
            "late records": (sorted(flink.get("late", [])), sorted(set(self.dropped))),
            "number of late records": (_count_late(flink), len(self.dropped)),
        }


def _list_rows(flink: Mapping[str, Any]) -> Iterator[_RecordedRow]:
    """Yield Flink's rows; those of a firing of `coGroup` are the pairs of its lists, or nulls if one is empty."""
    for row in flink.get("rows", ()):
        yield _to_row(row, row["left"], row["right"])
    for firing in flink.get("firings", ()):
        for left in firing["left"] or (None,):
            for right in firing["right"] or (None,):
                yield _to_row(firing, left, right)


def _to_row(content: Mapping[str, Any], left: int | None, right: int | None) -> _RecordedRow:
    time_ms = content["end"] - 1 if "end" in content else None
    return _RecordedRow(left, right, time_ms, content["kind"], content["by"], content["after"])


def _count_late(flink: Mapping[str, Any]) -> int:
    """Return the number of late records; a window join of SQL counts a record once per window."""
    counts = [flink[name] for name in ("num_dropped", "num_late_dropped") if name in flink]
    return int(counts[0]) if counts else len(flink.get("late", ()))
