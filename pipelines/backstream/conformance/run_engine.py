"""Run conformance cases as a user runs them: files, a definition, a plan, and the replay of `backstream run`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from backstream.chunks.replay import replay_chunks
from backstream.conformance.case_dataset import CaseDataset, write_dataset
from backstream.conformance.cases import (
    Case,
    Pairs,
    RecordedJoin,
    UnsupportedCaseError,
    list_late_records,
    window_of_firing,
)
from backstream.conformance.comparison import AnyCase, EngineResult
from backstream.conformance.job_dataset import write_job_dataset
from backstream.conformance.join_results import JOIN_COLUMNS, JoinedRows, require_independent_keys
from backstream.conformance.recorded_jobs import JobCase
from backstream.conformance.repeating_timers import RepeatingTimers
from backstream.conformance.script_cases import (
    ScriptCase,
    ScriptRows,
    count_result_rows,
    write_script_dataset,
)
from backstream.conformance.top_rows import TopRow
from backstream.errors import BackstreamError
from backstream.eventtime.instants import MIN_MS, epoch_ms, epoch_us
from backstream.eventtime.intervals import Interval
from backstream.eventtime.stream_replay import localize
from backstream.eventtime.window_operator import fire_windows
from backstream.eventtime.windows import Cumulate
from backstream.native.sessions.window_replay import to_watermarks
from backstream.native.supported import NotNativeError
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Mode
from backstream.runs.table_schemas import DROPPED, METRICS, OUTPUTS, PANES, PANES_KEPT, WINDOWS
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.runners import Runner, SparkRunner, plan_reason_for_spark

_Window = tuple[str, int, int]
"""Key, start, and end: in milliseconds for Flink, in microseconds for Spark."""
"""Key, start, and end of a window."""
_Timer = tuple[int, str, int]
"""Timestamp, key, and watermark of a firing timer."""


class _Panes(NamedTuple):
    """The records of the first, live, and final pane, empty if there is none, and the number of late firings."""

    first: tuple[int, ...]
    live: tuple[int, ...]
    final: tuple[int, ...]
    late_firings: int


@dataclass(frozen=True, slots=True)
class _ReplayResult:
    """The staged rows of a case; `timers` is None if the engine runs no process functions."""

    windows: Mapping[_Window, _Panes]
    dropped: list[int]
    fates: Mapping[str, int]
    timers: list[_Timer] | None

    def pairs(self, case: Case, flink: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Flink: each window, each dropped record, the fates, and each timer."""
        records = localize(case.records, case.window)
        watermarks = to_watermarks(flink["record_wm"])
        fates = fire_windows(records, watermarks, case.window, case.allowed_lateness_ms).fates
        timers = sorted((timer["ts"], timer["key"], timer["wm"]) for timer in flink.get("timers", []))
        return {
            "windows": (_panes_of_flink(case, flink["firings"]), self.windows),
            "dropped records": (list_late_records(flink), self.dropped),
            "fates": (dict(Counter(fate.value for fate in fates)), self.fates),
            "timers": (timers, self.timers),
        }


def _panes_of_flink(case: Case, firings: Sequence[Mapping[str, Any]]) -> dict[_Window, _Panes]:
    """Return the panes of Flink's firings; the final pane has all records, as in a stream without watermarks."""
    records = localize(case.records, case.window)
    offline = fire_windows(records, to_watermarks([MIN_MS] * len(records)), case.window, 0)
    windows = {
        (str(pane.key), *pane.window): _Panes((), (), tuple(sorted(pane.records)), 0) for pane in offline.panes
    }
    for firing in sorted(firings, key=lambda each: (each["wm"], each["kind"] == "late", each["by"])):
        window, counted = (str(firing["key"]), *window_of_firing(firing)), tuple(sorted(firing["records"]))
        before, is_late = windows.get(window, _Panes((), (), (), 0)), firing["kind"] == "late"
        windows[window] = before._replace(
            first=before.first if is_late else counted, live=counted, late_firings=before.late_firings + is_late
        )
    return windows


@dataclass(frozen=True, slots=True)
class _TopResult:
    """The published rows of a top-N, with the dropped records and the fates."""

    rows: list[TopRow]
    dropped: list[int]
    fates: Mapping[str, int]
    dropped_rows: int | None
    """The number of windows that were over when a record of theirs arrived; None if metrics don't count them."""

    def pairs(self, case: Case, flink: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Flink: each row, each record that no window accepted, and the fates."""
        results = fire_windows(case.records, to_watermarks(flink["record_wm"]), case.window, 0)
        rows = sorted(TopRow.from_recording(row)._replace(by=None) for row in flink["rows"])
        return {
            "rows": (rows, sorted(self.rows)),
            "dropped records": (results.dropped, self.dropped),
            "fates": (dict(Counter(fate.value for fate in results.fates)), self.fates),
            "number of dropped rows": (flink.get("num_dropped"), self.dropped_rows),
        }


@dataclass(frozen=True, slots=True)
class _PublishedWindows:
    """The published windows of a job of Structured Streaming, with the records in each."""

    windows: Mapping[_Window, tuple[int, ...]]

    def pairs(self, _case: JobCase, spark: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Spark: the last row of each window, since a table has one row for it."""
        rows = {
            (row["key"], row["start_us"], row["end_us"]): tuple(row["ids"])
            for batch in spark["batches"]
            for row in batch["rows"]
        }
        return {"windows": (rows, self.windows)}


class RunEngine:
    """The native engine or Spark's, behind the path of a run."""

    def __init__(self, runner: Runner, name: str) -> None:
        """Use a runner; the name is a value of `backfill.engine`."""
        self._runner, self._name = runner, name

    def __call__(self, cases: Sequence[AnyCase]) -> list[EngineResult | BackstreamError]:
        """Run cases, each in a home of its own; the result of a failed case is its error."""
        return [self._run_or_error(case) for case in cases]

    def _run_or_error(self, case: AnyCase) -> EngineResult | BackstreamError:
        with TemporaryDirectory(prefix="backstream-conformance-") as folder:
            try:
                if isinstance(case, JobCase):
                    return self._run_job(case, Path(folder))
                if isinstance(case, ScriptCase):
                    return self._run_script(case, Path(folder))
                if case.join:
                    return self._run_join(case, case.join, Path(folder))
                return self._run(case, Path(folder))
            except BackstreamError as error:
                return error

    def _run(self, case: Case, folder: Path) -> _ReplayResult | _TopResult:
        (folder / "windows").mkdir()
        dataset = write_dataset(case, folder / "windows", self._name)
        manifests = self._replay(dataset.definition, dataset.interval, folder / "windows")
        if case.top:
            return _TopResult(
                list(_load_top_rows(manifests, dataset)),
                sorted(row["arrival_seq"] for row in _load_rows(manifests, DROPPED)),
                _count_fates(manifests),
                _count_dropped_rows(manifests) if _are_windows_counted(case) else None,
            )
        timers = None
        if case.timers and self._name == "spark":
            timers = self._run_timers(case, case.timers, folder / "timers")
        return _ReplayResult(
            dict(_load_panes(manifests, dataset)),
            sorted(row["arrival_seq"] for row in _load_rows(manifests, DROPPED)),
            _count_fates(manifests),
            timers,
        )

    def _run_job(self, case: JobCase, folder: Path) -> _PublishedWindows:
        dataset = write_job_dataset(case, folder, self._name)
        manifests = self._replay(dataset.definition, dataset.interval, folder)
        windows: dict[_Window, tuple[int, ...]] = {}
        for row in _load_rows(manifests, WINDOWS):
            window = (row["key"], *(epoch_us(row[name]) for name in ("window_start", "window_end")))
            windows[window] = dataset.records_of(row, "")
        return _PublishedWindows(windows)

    def _run_join(self, case: Case, join: RecordedJoin, folder: Path) -> JoinedRows:
        require_independent_keys(case, join)
        dataset = write_dataset(case, folder, self._name)
        manifests = self._replay(dataset.definition, dataset.interval, folder)
        (left, _), (right, _) = JOIN_COLUMNS
        rows = [(row[left], row.get(right), epoch_ms(row["event_time"])) for row in _load_rows(manifests, WINDOWS)]
        outputs = [json.loads(row["row"]) for row in _load_rows(manifests, OUTPUTS)]
        return JoinedRows(rows, [row.get(left, row.get(right)) for row in outputs])

    def _run_script(self, case: ScriptCase, folder: Path) -> ScriptRows:
        definition, interval = write_script_dataset(case, folder, self._name)
        rows = {
            which: count_result_rows(case, _load_rows(self._replay(definition, interval, folder, mode), WINDOWS))
            for which, mode in case.modes.items()
        }
        return ScriptRows(rows)

    def _run_timers(self, case: Case, timers: RepeatingTimers, folder: Path) -> list[_Timer]:
        """Return the timers that fired, sorted by time and key."""
        folder.mkdir()
        process = {
            "class": f"{RepeatingTimers.__module__}:{RepeatingTimers.__name__}",
            "kwargs": {
                "delays_ms": list(timers.delays_ms),
                "period_ms": timers.period_ms,
                "most_repeats": timers.most_repeats,
            },
            "columns": {"watermark_ms": "bigint"},
            "reads": ["delete_timers_ms"],
        }
        dataset = write_dataset(case, folder, self._name, process)
        manifests = self._replay(dataset.definition, dataset.interval, folder)
        return sorted(
            (epoch_ms(row["event_time"]), row["key"], row["watermark_ms"])
            for row in _load_rows(manifests, WINDOWS)
        )

    def _replay(
        self, definition: Path, interval: Interval, folder: Path, mode: Mode = Mode.REPLAY
    ) -> list[Manifest]:
        """Plan and replay a range, as `backstream run` does before the audit."""
        home = Home(folder / "home")
        request = PlanRequest(definition, interval, mode=mode, trigger="conformance", home=home)
        prepare_source(definition, home, self._runner)
        try:
            plan = plan_run(request)
        except NotNativeError as error:
            raise UnsupportedCaseError(error.reason) from None
        engine = self._runner.engine()
        if plan_reason_for_spark(plan) is not None:
            engine = SparkRunner(lambda: self._runner.session("conformance")).engine()
        return list(replay_chunks(engine, plan, plan.chunks))


def _load_top_rows(manifests: Sequence[Manifest], dataset: CaseDataset) -> Iterator[TopRow]:
    for row in _load_rows(manifests, WINDOWS):
        bounds_ms = (epoch_ms(row["window_start"]), epoch_ms(row["window_end"]))
        yield TopRow(*bounds_ms, row["key"], row["place"], dataset.records_of(row, ""), row["total"])


def _are_windows_counted(case: Case) -> bool:
    """Return whether Flink counts late rows of each window, and the metrics have each of them."""
    return case.top is not None and case.top.are_records and not isinstance(case.window, Cumulate)


def _count_dropped_rows(manifests: Sequence[Manifest]) -> int:
    return sum(row["dropped"] + row["expired"] for row in _load_rows(manifests, METRICS))


def _count_fates(manifests: Sequence[Manifest]) -> dict[str, int]:
    fates: Counter[str] = Counter()
    for counts in sum_fates(list(manifests)).values():
        fates.update(counts)
    return dict(+fates)


def _load_panes(manifests: Sequence[Manifest], dataset: CaseDataset) -> Iterator[tuple[_Window, _Panes]]:
    for row in _load_rows(manifests, PANES):
        first, live, final = (dataset.records_of(row, f"__{pane}") for pane in PANES_KEPT)
        window = (row["key"], epoch_ms(row["window_start"]), epoch_ms(row["window_end"]))
        yield window, _Panes(first, live, final, row["late_firings"])


def _load_rows(manifests: Sequence[Manifest], suffix: str) -> Iterator[dict[str, Any]]:
    for manifest in manifests:
        for file in manifest.files.get(suffix, ()):
            yield from pq.read_table(file.path).to_pylist()
