"""Run recorded joins by the rules in plain Python, and compare them with Flink's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from backstream.conformance.cases import Case, Pairs
from backstream.eventtime.joins.operator import JoinedRow
from backstream.eventtime.joins.spec import JoinResults, JoinSpec, replay_join
from backstream.eventtime.joins.window_join import join_lists
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.watermarks import Watermarks


class _RecordedRow(NamedTuple):
    """A row with its cause: `by` is the number of a record, or of the input's watermark as Flink counts them."""

    left: int | None
    right: int | None
    start_ms: int | None
    end_ms: int | None
    kind: str
    by: int | None
    after: int


@dataclass(frozen=True, slots=True)
class JoinReplay:
    """The result of the reference for a recorded join."""

    watermarks: Watermarks
    results: JoinResults

    @classmethod
    def of(cls, case: Case, join: JoinSpec) -> JoinReplay:
        """Return the result for a case."""
        watermarks = compute_watermarks(case.records, case.emission, case.clock, case.partitions)
        right = set(case.emission.sources[1].partitions)
        lateness_ms = case.allowed_lateness_ms
        return cls(watermarks, replay_join(join, case.records, watermarks, right, case.window, lateness_ms))

    def pairs(self, case: Case, flink: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Flink: watermarks, rows with their causes, and late records."""
        late, rows = self.results.dropped, [self._to_recorded(row, flink) for row in self.results.rows]
        combined = [(event["wm"], event["after"]) for event in flink["combined"]]
        return {
            "watermarks": (combined, [(event.watermark_ms, event.after) for event in self.watermarks.events]),
            "watermark in force": (flink["record_wm"], self.watermarks.in_force_ms),
            "rows": (sorted(_list_rows(case, flink), key=str), sorted(rows, key=str)),
            "late records": (sorted(flink.get("late", [])), sorted(set(late))),
            "number of late records": (_count_late(flink), len(late)),
        }

    def _to_recorded(self, row: JoinedRow, flink: Mapping[str, Any]) -> _RecordedRow:
        """Return a row in the form of a recording, in which the watermarks of the inputs have numbers."""
        start_ms, end_ms = row.window or (None, None)
        if "firings" in flink:
            start_ms = None
        if row.is_by_record:
            return _RecordedRow(row.left, row.right, start_ms, end_ms, "record", row.by, row.by)
        # A difference of the watermarks themselves is reported first.
        combined = flink["combined"][row.by] if row.by < len(flink["combined"]) else {"by": None, "after": -1}
        return _RecordedRow(row.left, row.right, start_ms, end_ms, "watermark", combined["by"], combined["after"])


def _list_rows(case: Case, flink: Mapping[str, Any]) -> Iterator[_RecordedRow]:
    """Yield Flink's rows; those of a firing of `coGroup` are the rows of a full join of its lists."""
    for row in flink.get("rows", ()):
        yield _to_row(row, row["left"], row["right"])
    for firing in flink.get("firings", ()):
        join = case.join
        for pair in (
            join_lists(firing["left"], firing["right"], join.join_type, case.records, join.matches) if join else ()
        ):
            yield _to_row(firing, *pair)


def _to_row(content: Mapping[str, Any], left: int | None, right: int | None) -> _RecordedRow:
    cause = content["kind"], content["by"], content["after"]
    return _RecordedRow(left, right, content.get("start"), content.get("end"), *cause)


def _count_late(flink: Mapping[str, Any]) -> int:
    """Return the number of late records; a window join of SQL counts a record once per window."""
    counts: Sequence[int] = [flink[name] for name in ("num_dropped", "num_late_dropped") if name in flink]
    return counts[0] if counts else len(flink.get("late", ()))
