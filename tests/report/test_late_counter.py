"""The metric of late records of a Flink SQL job, as the report states it beside the number of records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.spark.histories import definition_of, random_history, write_history
from tests.spark.runs import planned, rows

from backstream.chunks.native_engine import NativeEngine
from backstream.chunks.replay import replay_chunks
from backstream.chunks.threads import Threads
from backstream.definition.loader import parse_definition
from backstream.eventtime.late_counters import count_late_partials
from backstream.eventtime.windows import Sliding
from backstream.report.figures import FATES, ReconciledRow, RecordAccounting, Totals, late_counter_text
from backstream.runs.plan import Mode
from backstream.text import ReportFormat
from backstream.workflow.report import report_text

HOUR_MS = 3_600_000


def stated(folder: Path, **sections: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return what the report of a replay states about the metric, and the dropped records."""
    write_history(folder / "data", random_history(5, rows=600))
    content = definition_of(
        folder / "data",
        **{
            "window": {"kind": "tumbling", "size": "4h"},
            "watermark": {"strategy": "flink_sql", "delay": "0s"},
            "lateness": {"allowed": "0s"},
            "backfill": {"engine": "native", "chunk": "1d"},
            **sections,
        },
    )
    plan = planned(folder, content, Mode.REPLAY, since=0, until=3)
    manifests = list(replay_chunks(NativeEngine(Threads()), plan, plan.chunks))
    found = re.search(r"numLateRecordsDropped[^<]*", report_text(plan, ReportFormat.HTML))
    return found[0].strip() if found else "", rows(manifests, "dropped")


def test_aggregates_are_counted_by_key_and_slice(tmp_path: Path) -> None:
    text, dropped = stated(tmp_path)

    slices = {(row["key"], row["event_time"].timestamp() // (4 * 3_600)) for row in dropped}
    assert len(slices) < len(dropped)
    assert text == (
        f"numLateRecordsDropped of the job: {len(slices)} to {len(dropped)}, because Flink SQL counts rows that it"
        " has aggregated by key and slice; with table.optimizer.agg-phase-strategy = ONE_PHASE, it counts records"
    )


@pytest.mark.parametrize(
    "sections",
    [
        {"watermark": {"strategy": "bounded_out_of_orderness", "delay": "0s"}},
        {"window": {"kind": "session", "gap": "1h"}},
    ],
)
def test_nothing_is_stated_where_records_are_counted(tmp_path: Path, sections: dict[str, Any]) -> None:
    text, dropped = stated(tmp_path, **sections)

    assert (text, len(dropped) > 0) == ("", True)


@pytest.mark.parametrize(
    ("rows_of_window", "text"),
    [(1, "numLateRecordsDropped of the job: 9, one for each window of a record"), (2, "")],
)
def test_ranked_records_are_counted_in_each_window(rows_of_window: int, text: str) -> None:
    content = definition_of(
        Path("data"),
        window={"kind": "sliding", "size": "4h", "slide": "1h"},
        watermark={"strategy": "flink_sql"},
        lateness={"allowed": "0s"},
        top={"n": 1, "by": "total"},
    )
    definition = parse_definition(content, "test")
    total = ReconciledRow("all", tuple(0 for _ in FATES), 10, None)
    accounting = RecordAccounting((), total, 10, 0, 10, 10 * rows_of_window, 0, is_repeated=True)
    totals = Totals(4, 4, None, events=40, on_time=31, late=0, dropped=0, expired=9)

    assert late_counter_text(definition, accounting, totals, 0) == text


def test_rows_leave_the_first_aggregation_when_the_watermark_enters_another_slice() -> None:
    window = Sliding(2 * HOUR_MS, HOUR_MS, 0)
    late = [("a", 10, HOUR_MS * 3 - 1), ("a", 20, HOUR_MS * 4 - 2), ("a", 30, HOUR_MS * 4 - 1), ("b", 10, 0)]

    assert count_late_partials(late, window) == 3
