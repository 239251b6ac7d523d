"""Faults of a run, each with the checks that detect it and the rows that they list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.quality.example_run import (
    HOURLY,
    MINUTE_MS,
    PLAN,
    SINCE_MS,
    Row,
    definition,
    fates_of,
    good,
    metrics,
    panes_of,
    results_of,
)
from tests.quality.faults import (
    SIX,
    as_sessions,
    changed,
    deleted,
    duplicated,
    everywhere,
    in_partition_b,
    less_at_six,
    moved,
    none_at_all,
    of_another_chunk,
    of_five_more,
    of_other_fate,
    past_weeks,
    same,
    shortened,
    unexpected,
    with_gap,
    with_lost_records,
    with_more,
    with_one_more_staged,
    with_seconds,
    with_six_twice,
    without_partition,
    without_six,
)

from backstream.eventtime.duplicates import RecordGap
from backstream.eventtime.instants import HOUR_MS
from backstream.quality.evidence import RepeatedPosition, RepeatedPositions, RunEvidence
from backstream.quality.gate import evaluate_suite
from backstream.runs.input_files import EQUAL_TO, FileList, InexactNumbers, MisplacedRecords, SkippedFile
from backstream.runs.manifest import Manifest
from backstream.runs.results import Audit, Verdict


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fault in the run of `example_run`; `found` has the failed checks and their first rows."""

    found: Mapping[str, list[str]]
    verdict: Verdict
    rows: Callable[[list[Row]], list[Row]] = same
    fates: Callable[[Manifest], Manifest] | None = None
    results: Callable[[pa.Table], pa.Table] | None = None
    panes: Callable[[pa.Table], pa.Table] | None = None
    evidence: RunEvidence = field(default_factory=RunEvidence)
    quality: Mapping[str, Any] = field(default_factory=dict)
    window: Mapping[str, str] = field(default_factory=lambda: HOURLY)
    plan: Mapping[str, Any] = field(default_factory=dict)

    def judged(self, timetable: Path) -> Audit:
        """Return the audit of the run with this fault."""
        rows = self.rows(good())
        fates, results = fates_of(rows), results_of(rows)
        audit, _ = evaluate_suite(
            replace(PLAN, **self.plan),
            definition(timetable, window=self.window, **self.quality),
            metrics(rows),
            [self.fates(fates) if self.fates else fates],
            results=[self.results(results) if self.results else results],
            panes=[self.panes(panes_of(rows)) if self.panes else panes_of(rows)],
            load_evidence=lambda: self.evidence,
        )
        return audit


SOFT_MISSING = "expected windows have events, within the soft limit"
HARD_MISSING = "expected windows have events, within the hard limit"
ROWS_MADE = "the rows of every window contain all its records"
PANES_MADE = "the panes of every window contain their records"
BEHIND_A_ROW = "every counted record belongs to a row"
UNREADABLE = "the share of unreadable records is within its {} limit"
INEXACT = "the share of inexact numbers is within its {} limit"
IMPLAUSIBLE = "the share of implausible times is within its {} limit"
DUPLICATES = "the share of duplicates is within its {} limit"
UNDECIDED = "the share of undecided records is within its {} limit"
WITHOUT_ID = "the share of records without an id is within its {} limit"
BAND = "the {} of the windows is in the band of past weeks"
HALF = "every window with events has at least half of its expected events"
CONTIGUOUS = "windows are contiguous: each lies on the grid and has its full size"


def share(what: str, whom: str, limit: str) -> str:
    return f"the {what} share of {whom} is within {'its' if whom == 'the run' else 'the'} {limit} limit"


RUN, PARTITION, WINDOW = "the run", "every source partition", "every window"
TOLERANT = {"missing_ratio": {"warn": 0.1, "fail": 0.25}}
HARDLY_DROPPED = {"dropped_ratio": {"warn": 0.01, "fail": 0.5}}
NEVER_DROPPED = {"dropped_ratio": {"warn": 0.01, "fail": 0.015}}
AT_SIX = "b 2026-03-01T06:00Z"
LONG_ID = InexactNumbers("id", "double", 1, "9007199254740993", "9007199254740992.0", "/data/a.csv")
FIRST = [f"{name} 2026-03-01T00:00Z" for name in ("a", "b")]

MUTATIONS: dict[str, Mutation] = {
    "no window at all": Mutation(
        {"the run has at least one window": []}, Verdict.FAIL, none_at_all, quality={"expected": None}
    ),
    "one window deleted": Mutation({SOFT_MISSING: [f"{AT_SIX} False"]}, Verdict.WARN, deleted),
    "one window emptied": Mutation(
        {SOFT_MISSING: [f"{AT_SIX} False"]}, Verdict.WARN, changed(events=0, on_time=0, late=0)
    ),
    "one window deleted, with a limit near zero": Mutation(
        {HARD_MISSING: [f"{AT_SIX} False"], SOFT_MISSING: [f"{AT_SIX} False"]},
        Verdict.FAIL,
        deleted,
        quality={"missing_ratio": {"warn": 0.0, "fail": 0.01}},
    ),
    "one window deleted where some may be": Mutation({}, Verdict.PASS, deleted, quality=TOLERANT),
    "one window shifted by 20 minutes": Mutation(
        {CONTIGUOUS: ["b 2026-03-01T06:20Z False"]}, Verdict.FAIL, moved(20 * MINUTE_MS), quality=TOLERANT
    ),
    "one window shortened": Mutation(
        {
            CONTIGUOUS: [f"{AT_SIX} False"],
            ROWS_MADE: ["2026-03-01T06:00Z 50"],
            PANES_MADE: ["2026-03-01T06:00Z 149"],
        },
        Verdict.FAIL,
        shortened,
    ),
    "one window shifted by a day": Mutation(
        {"every window is in the range": ["b 2026-03-02T06:00Z False"]},
        Verdict.FAIL,
        moved(24 * HOUR_MS),
        quality=TOLERANT,
    ),
    "one window in two rows": Mutation(
        {"every window is counted once": [f"{AT_SIX} 2"]}, Verdict.FAIL, duplicated
    ),
    "one window of an unknown source partition": Mutation(
        {"every window with an event was expected": ["c 2026-03-01T06:00Z False"]}, Verdict.WARN, unexpected
    ),
    "one window inflated by 5 events": Mutation(
        {"every window has at most its expected events": [f"{AT_SIX} 5"]},
        Verdict.WARN,
        changed(events=55, on_time=54),
    ),
    "one window thinned to 10 of 50 events": Mutation(
        {HALF: [f"{AT_SIX} 0.2"]}, Verdict.PASS, changed(events=10, on_time=10, late=0)
    ),
    "one chunk without manifest": Mutation(
        {"every chunk of the plan was finished": []}, Verdict.FAIL, fates=of_another_chunk
    ),
    "one source partition silent": Mutation(
        {"every expected source partition delivered": ["b False"]},
        Verdict.FAIL,
        without_partition,
        quality={"missing_ratio": {"warn": 0.5, "fail": 0.5}},
    ),
    "123 records lost before any window": Mutation(
        {"every record read has exactly one fate": []}, Verdict.FAIL, fates=with_lost_records
    ),
    "5 records with a fate in no window": Mutation(
        {"every record with a fate is in its window": ["b 5"], BEHIND_A_ROW: []},
        Verdict.FAIL,
        changed(events=45, on_time=44),
        fates=of_five_more,
    ),
    "one window lost the fate of 5 events": Mutation(
        {"every event of a window is on time, late, dropped or expired": [f"{AT_SIX} 5"]},
        Verdict.FAIL,
        changed(on_time=44),
    ),
    "one window 10 % late": Mutation(
        {share("late", WINDOW, "soft"): [f"{AT_SIX} 0.1"]}, Verdict.PASS, changed(on_time=45, late=5)
    ),
    "one window half late": Mutation(
        {share("late", WINDOW, "hard"): [f"{AT_SIX} 0.5"], share("late", WINDOW, "soft"): [f"{AT_SIX} 0.5"]},
        Verdict.PASS,
        changed(on_time=25, late=25),
    ),
    "one source partition 8 % late": Mutation(
        {
            share("late", PARTITION, "soft"): ["b 0.08"],
            share("late", WINDOW, "soft"): [f"{FIRST[1]} 0.08", "b 2026-03-01T01:00Z 0.08"],
        },
        Verdict.PASS,
        in_partition_b(on_time=46, late=4),
    ),
    "one source partition 30 % late": Mutation(
        {
            share("late", PARTITION, "hard"): ["b 0.3"],
            share("late", PARTITION, "soft"): ["b 0.3"],
            share("late", WINDOW, "hard"): [f"{FIRST[1]} 0.3", "b 2026-03-01T01:00Z 0.3"],
            share("late", WINDOW, "soft"): [f"{FIRST[1]} 0.3", "b 2026-03-01T01:00Z 0.3"],
        },
        Verdict.WARN,
        in_partition_b(on_time=35, late=15),
        quality={"late_ratio": {"warn": 0.2, "fail": 0.25}},
    ),
    "the run 6 % late": Mutation(
        {
            share("late", RUN, "soft"): [],
            share("late", PARTITION, "soft"): ["a 0.06", "b 0.06"],
            share("late", WINDOW, "soft"): [f"{window} 0.06" for window in FIRST],
        },
        Verdict.WARN,
        everywhere(on_time=47, late=3),
    ),
    "the run 26 % late": Mutation(
        {
            share("late", whom, limit): named
            for whom, named in (
                (RUN, []),
                (PARTITION, ["a 0.26", "b 0.26"]),
                (WINDOW, [f"{window} 0.26" for window in FIRST]),
            )
            for limit in ("hard", "soft")
        },
        Verdict.FAIL,
        everywhere(on_time=37, late=13),
    ),
    "one window with one event of 50 dropped": Mutation(
        {share("dropped", WINDOW, "soft"): [f"{AT_SIX} 0.02"]},
        Verdict.PASS,
        changed(on_time=49, late=0, dropped=1),
        quality=HARDLY_DROPPED,
    ),
    "the same, with a limit near zero": Mutation(
        {
            share("dropped", WINDOW, "hard"): [f"{AT_SIX} 0.02"],
            share("dropped", WINDOW, "soft"): [f"{AT_SIX} 0.02"],
        },
        Verdict.PASS,
        changed(on_time=49, late=0, dropped=1),
        quality=NEVER_DROPPED,
    ),
    "2 % of one source partition dropped": Mutation(
        {
            share("dropped", PARTITION, "soft"): ["b 0.02"],
            share("dropped", WINDOW, "soft"): [f"{FIRST[1]} 0.02", "b 2026-03-01T01:00Z 0.02"],
        },
        Verdict.PASS,
        in_partition_b(on_time=49, late=0, dropped=1),
        quality=HARDLY_DROPPED,
    ),
    "2 % of one source partition dropped, with a limit near zero": Mutation(
        {
            share("dropped", whom, limit): named
            for whom, named in (
                (PARTITION, ["b 0.02"]),
                (WINDOW, [f"{FIRST[1]} 0.02", "b 2026-03-01T01:00Z 0.02"]),
            )
            for limit in ("hard", "soft")
        },
        Verdict.WARN,
        in_partition_b(on_time=49, late=0, dropped=1),
        quality=NEVER_DROPPED,
    ),
    "2 % of the run dropped": Mutation(
        {
            share("dropped", RUN, "soft"): [],
            share("dropped", PARTITION, "soft"): ["a 0.02", "b 0.02"],
            share("dropped", WINDOW, "soft"): [f"{window} 0.02" for window in FIRST],
        },
        Verdict.WARN,
        everywhere(on_time=49, late=0, dropped=1),
        quality=HARDLY_DROPPED,
    ),
    "2 % of the run dropped, with a limit near zero": Mutation(
        {
            share("dropped", whom, limit): named
            for whom, named in (
                (RUN, []),
                (PARTITION, ["a 0.02", "b 0.02"]),
                (WINDOW, [f"{window} 0.02" for window in FIRST]),
            )
            for limit in ("hard", "soft")
        },
        Verdict.FAIL,
        everywhere(on_time=49, late=0, dropped=1),
        quality=NEVER_DROPPED,
    ),
    "one window that never fired": Mutation(
        {
            "every window with events has fired: the watermark reached +inf": ["2026-03-01T06:00Z False"],
            ROWS_MADE: ["2026-03-01T06:00Z 100"],
            BEHIND_A_ROW: [],
        },
        Verdict.FAIL,
        results=without_six,
    ),
    "one window to be published twice": Mutation(
        {
            "every window and key has one row": ["2026-03-01T06:00Z 1"],
            ROWS_MADE: ["2026-03-01T06:00Z -100"],
            BEHIND_A_ROW: [],
        },
        Verdict.FAIL,
        results=with_six_twice,
    ),
    "one session cut in two": Mutation(
        {"no session is cut at an edge": ["2026-03-01T06:00Z 1"]},
        Verdict.FAIL,
        results=as_sessions,
        window={"kind": "session", "gap": "10m"},
    ),
    "5 records of one window behind no row": Mutation(
        {ROWS_MADE: ["2026-03-01T06:00Z 5"], BEHIND_A_ROW: []},
        Verdict.FAIL,
        results=less_at_six("record_count"),
    ),
    "5 records of one window in no live pane": Mutation(
        {PANES_MADE: ["2026-03-01T06:00Z 5"]}, Verdict.FAIL, panes=less_at_six("record_count__live")
    ),
    "a record more than was counted behind the rows": Mutation(
        {BEHIND_A_ROW: []}, Verdict.FAIL, fates=with_one_more_staged
    ),
    "no record readable": Mutation(
        {
            "the run has at least one window": [],
            "at least one record could be read": [],
            UNREADABLE.format("hard"): [],
            UNREADABLE.format("soft"): [],
        },
        Verdict.FAIL,
        none_at_all,
        fates=with_more("quarantined", 2_400),
        quality={"expected": None},
    ),
    "1 record unreadable": Mutation(
        {UNREADABLE.format("soft"): []}, Verdict.WARN, fates=with_more("quarantined", 1)
    ),
    "5 % of the records unreadable": Mutation(
        {UNREADABLE.format("hard"): [], UNREADABLE.format("soft"): []},
        Verdict.FAIL,
        fates=with_more("quarantined", 126),
    ),
    "10 % of the records are duplicates": Mutation(
        {DUPLICATES.format("soft"): []}, Verdict.WARN, fates=with_more("duplicate", 267)
    ),
    "10 % of the records are duplicates, with a limit near zero": Mutation(
        {DUPLICATES.format("hard"): [], DUPLICATES.format("soft"): []},
        Verdict.FAIL,
        fates=with_more("duplicate", 267),
        quality={"duplicate_ratio": {"warn": 0.0, "fail": 0.05}},
    ),
    "one record undecided": Mutation(
        {UNDECIDED.format("soft"): []}, Verdict.WARN, fates=of_other_fate("on_time", "undecided_counted", 1)
    ),
    "5 % of the records undecided": Mutation(
        {UNDECIDED.format("hard"): [], UNDECIDED.format("soft"): []},
        Verdict.FAIL,
        fates=of_other_fate("on_time", "undecided_counted", 126),
    ),
    "one record without an id": Mutation(
        {WITHOUT_ID.format("soft"): []}, Verdict.WARN, fates=with_gap(RecordGap.NO_ID, 1)
    ),
    "10 % of the records without an id, with a limit near zero": Mutation(
        {WITHOUT_ID.format("hard"): [], WITHOUT_ID.format("soft"): []},
        Verdict.FAIL,
        fates=with_gap(RecordGap.NO_ID, 240),
        quality={"without_id_ratio": {"warn": 0.0, "fail": 0.05}},
    ),
    "one record with an empty id": Mutation(
        {"no id is an empty text": []}, Verdict.PASS, fates=with_gap(RecordGap.EMPTY_ID, 1)
    ),
    "one record without a key": Mutation(
        {"every record has a key": []}, Verdict.PASS, fates=with_gap(RecordGap.NO_KEY, 1)
    ),
    "two positions of the source occur twice": Mutation(
        {"every position of the source occurs once": []},
        Verdict.FAIL,
        evidence=RunEvidence(
            repeated=RepeatedPositions(2, [RepeatedPosition("a", 17, 2), RepeatedPosition("a", 18, 2)])
        ),
    ),
    "24 rows that would replace 100": Mutation(
        {"the run writes enough rows compared with the replaced ones": []},
        Verdict.FAIL,
        evidence=RunEvidence(replaced_by_day={SINCE_MS: 100}),
    ),
    "a run of more than twice the usual records": Mutation(
        {"records per day are near those of past runs (median and MAD)": []},
        Verdict.WARN,
        evidence=RunEvidence(past=(900, 1_000, 1_000, 1_050, 1_100)),
    ),
    "half of the usual events": Mutation(
        {BAND.format("events").replace(" is ", " are "): ["2026-03-01T00:00Z False", "2026-03-01T01:00Z False"]},
        Verdict.WARN,
        evidence=RunEvidence(past_windows=past_weeks(events=200)),
    ),
    "more late events than usual": Mutation(
        {BAND.format("late share"): ["2026-03-01T00:00Z False", "2026-03-01T01:00Z False"]},
        Verdict.WARN,
        everywhere(on_time=46, late=4),
        evidence=RunEvidence(past_windows=past_weeks(late_ratio=0.0)),
        quality={"late_ratio": {"warn": 0.5, "fail": 0.9}},
    ),
    "less complete than usual": Mutation(
        {BAND.format("completeness"): ["2026-03-01T00:00Z False", "2026-03-01T01:00Z False"]},
        Verdict.WARN,
        evidence=RunEvidence(past_windows=past_weeks(completeness=1.2)),
    ),
    "half of the usual events, of three weeks only": Mutation(
        {}, Verdict.PASS, evidence=RunEvidence(past_windows=past_weeks(weeks=3, events=200))
    ),
    "one damaged input file left out": Mutation(
        {"no input file was skipped": []},
        Verdict.WARN,
        plan={"skipped": (SkippedFile("/data/a.parquet", 0, 0, "Parquet file size is 0 bytes"),)},
    ),
    "one input file of an earlier run deleted": Mutation(
        {"every input file of earlier runs still exists": []},
        Verdict.FAIL,
        plan={"removed": FileList(1, ("/data/a.parquet",))},
    ),
    "one input file delivered twice": Mutation(
        {"no input file has the content of another one": []},
        Verdict.FAIL,
        plan={"equal_files": FileList(1, (f"/data/b.parquet{EQUAL_TO}/data/a.parquet",))},
    ),
    "two of 100 ids with more digits than a double": Mutation(
        {
            INEXACT.format("hard"): [],
            INEXACT.format("soft"): [],
        },
        Verdict.FAIL,
        plan={"inexact": (replace(LONG_ID, count=2),), "prepared": {"read": 100}},
    ),
    "one of 100 ids with more digits than a double": Mutation(
        {INEXACT.format("soft"): []},
        Verdict.WARN,
        plan={"inexact": (LONG_ID,), "prepared": {"read": 100}},
    ),
    "one record in the folder of another day": Mutation(
        {"every record is in the folder of its event time": []},
        Verdict.FAIL,
        plan={"misplaced": (MisplacedRecords("/data/dt=2026-03-02/a.parquet", 1, SIX, SIX),)},
    ),
    "one record in seconds among milliseconds": Mutation(
        {IMPLAUSIBLE.format("soft"): []}, Verdict.WARN, plan=with_seconds(1)
    ),
    "2 % of the records in seconds among milliseconds": Mutation(
        {IMPLAUSIBLE.format("hard"): [], IMPLAUSIBLE.format("soft"): []}, Verdict.FAIL, plan=with_seconds(48)
    ),
}


def table() -> str:
    """Return the mutations as a Markdown table for the page on quality."""
    lines = ["| fault | failed check | first rows | verdict |", "|---|---|---|---|"]
    for name, mutation in MUTATIONS.items():
        found = list(mutation.found.items()) or [("none: within its limits", [])]
        for at, (check, rows) in enumerate(found):
            first = rows[0] if rows else ""
            lines.append(
                f"| {name if at == 0 else ''} | {check} | {first} | {mutation.verdict if at == 0 else ''} |"
            )
    return "\n".join(lines)
