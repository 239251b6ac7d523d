"""Change one operator or constant on the path of a run, and see that a recording of Flink then differs.

    python -m tests.conformance.mutants [PART OF A MODULE'S NAME]

Each change is made in a copy of the package. A process with this copy replays recordings until one differs. A change
after which all recordings agree has survived: the command lists it and ends with 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conformance.pair_cover import Line, all_recordings, cover_pairs

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pipelines" / "backstream"
NATIVE, SPARK = "native", "spark"
AT_ONCE, LONGEST_S = 2, 1_800


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a module's text, and the engine that uses the module."""

    engine: str
    module: str
    old: str
    new: str


MUTANTS = (
    # Watermarks and firing times, for both engines.
    Mutant(NATIVE, "source/arrival_index.py", "2 * (base_ms // self.step_ms)", "2 * (base_ms // self.step_ms + 1)"),
    Mutant(NATIVE, "watermarks/firing_times_from_index.py", "// clock.interval_ms + 1", "// clock.interval_ms"),
    Mutant(NATIVE, "watermarks/firing_times_from_index.py", "ticks <= clock.last_tick)", "ticks < clock.last_tick)"),
    Mutant(NATIVE, "watermarks/firing_times_from_index.py", "interval_ms + 2", "interval_ms + 1"),
    Mutant(NATIVE, "watermarks/firing_times.py", "grid.list_ends_ms(numbers) - 1", "grid.list_ends_ms(numbers)"),
    Mutant(NATIVE, "watermarks/firing_times.py", "max_ms + allowed_lateness_ms)", "max_ms + allowed_lateness_ms + 1)"),
    Mutant(NATIVE, "watermarks/timeline.py", 'last_ms, event_times_ms, side="left"', 'last_ms, event_times_ms, side="right"'),
    Mutant(NATIVE, "watermarks/cells.py", 'row["block"] + 1, _sort_key', 'row["block"], _sort_key'),
    Mutant(NATIVE, "watermarks/tick_maxima.py", "ticks >= last_seen + idle_after", "ticks > last_seen + idle_after"),
    Mutant(NATIVE, "watermarks/tick_maxima.py", "floor_ms)]) - delay_ms - 1)", "floor_ms)]) - delay_ms)"),
    Mutant(NATIVE, "eventtime/emission.py", "self.is_minimum and len(delays_ms) == 1", "len(delays_ms) == 1"),
    Mutant(SPARK, "spark/watermarks/compress.py", "event_ms - F.lit(emission.delay_ms) - F.lit(1)", "event_ms - F.lit(emission.delay_ms)"),
    Mutant(SPARK, "spark/watermarks/join.py", "lambda marker: marker.rise_ms", "lambda marker: marker.rise_ms + 1"),
    Mutant(SPARK, "spark/watermarks/firing_time_columns.py", "return time_ms >= window_ms", "return time_ms > window_ms"),
    Mutant(SPARK, "spark/watermarks/firing_time_columns.py", "(seq > window_seq)", "(seq >= window_seq)"),
    # Fixed windows by DuckDB.
    Mutant(NATIVE, "native/sql.py", "({place[0]} >= {which}_ms)", "({place[0]} > {which}_ms)"),
    Mutant(NATIVE, "native/sql.py", "({seq} > {which}_seq OR", "({seq} >= {which}_seq OR"),
    Mutant(NATIVE, "native/sql.py", "f\"({end_ms} - {window.size_ms})\"", "f\"({end_ms} - {window.size_ms} + 1)\""),
    Mutant(NATIVE, "native/window_queries.py", "WHEN NOT {is_removed} THEN 1 ELSE 2", "WHEN NOT {is_removed} THEN 2 ELSE 1"),
    Mutant(NATIVE, "native/window_queries.py", "{early} OR NOT {fired} AS is_on_time", "{early} OR NOT {cleaned_up} AS is_on_time"),
    Mutant(NATIVE, "native/task_cuts.py", "(low * starts.windows_per_start, high", "(low * starts.windows_per_start + 1, high"),
    Mutant(NATIVE, "native/aggregates.py", 'in ("min", "max") else "sum"', 'in ("min", "max") else "max"'),
    Mutant(NATIVE, "native/fate_counts.py", "AND {start_ms} < {self.owned.end_ms}", "AND {start_ms} < {self.owned.start_ms}"),
    Mutant(NATIVE, "spark/native/windows.py", "// grid.step_ms - 1", "// grid.step_ms + 2"),
    # Fixed windows by Spark.
    Mutant(SPARK, "spark/windows/aggregation.py", "{pane_count_column('live')} - {pane_count_column('first')}", "{pane_count_column('live')} - {pane_count_column('first')} + 1"),
    Mutant(SPARK, "spark/windows/aggregation.py", '"live": _IS_ACCEPTED', '"live": _IS_ON_TIME'),
    Mutant(SPARK, "spark/windows/fates.py", "F.lit(after_cleanup)).otherwise(F.lit(Fate.LATE))", "F.lit(Fate.LATE)).otherwise(F.lit(after_cleanup))"),
    Mutant(SPARK, "spark/windows/fates.py", "slide_ms) + slide_ms", "slide_ms)"),
    Mutant(SPARK, "spark/windows/assignment.py", "start_ms + int64_literal(window.size_ms)", "start_ms + int64_literal(window.size_ms - 1)"),
    # Sessions.
    Mutant(NATIVE, "native/sessions/queries.py", "watermark_ms < event_ms - 1 AS", "watermark_ms <= event_ms AS"),
    Mutant(NATIVE, "native/sessions/queries.py", "chains = 1 AND", "chains >= 1 AND"),
    Mutant(NATIVE, "native/sessions/window_replay.py", "is_late = end_ms - 1 <= watermark_ms", "is_late = end_ms <= watermark_ms"),
    Mutant(NATIVE, "native/sessions/window_replay.py", "if end_ms - 1 > watermark_ms:", "if end_ms > watermark_ms:"),
    Mutant(NATIVE, "native/sessions/arrow_replay.py", "first = firings[0].size if is_first else 0", "first = firings[0].size"),
    Mutant(SPARK, "spark/sessions/islands.py", "F.col(FIRST) - before_ms > F.col(GAP)", "F.col(FIRST) - before_ms >= F.col(GAP)"),
    Mutant(SPARK, "spark/sessions/islands.py", "F.col(_CHAINS) == F.lit(1)", "F.col(_CHAINS) >= F.lit(1)"),
    Mutant(SPARK, "spark/sessions/found_sessions.py", "(F.col(START) < boundary_ms)", "(F.col(START) > boundary_ms)"),
    Mutant(SPARK, "spark/sessions/session_panes.py", 'FILTER (WHERE session__in_"', 'FILTER (WHERE NOT session__in_"'),
    # Timers.
    Mutant(SPARK, "eventtime/timers.py", "at_ms <= watermark_ms]", "at_ms < watermark_ms]"),
    Mutant(SPARK, "spark/process_functions.py", "process_element(record, time_ms, watermark_ms)", "process_element(record, time_ms, time_ms)"),
)  # fmt: skip

UNCHANGED = Mutant(NATIVE, "errors.py", "class BackstreamError", "class BackstreamError")
"""The recordings agree without a change, so it is the change that kills a mutant."""


def main(part: str) -> int:
    """Print what kills each mutant, and return 1 if one survives."""
    chosen = [mutant for mutant in MUTANTS if part in mutant.module]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(_hunt, [UNCHANGED]))
        fates = list(pool.map(_hunt, chosen))
    survivors = fates.count(None)
    print(f"{len(chosen)} mutants, {survivors} survived")
    return 1 if survivors else 0


def _hunt(mutant: Mutant) -> str | None:
    """Return the recording that a mutant makes differ; None if all agree."""
    begin = time.monotonic()
    with TemporaryDirectory(prefix="backstream-mutant-") as folder:
        _copy_changed(mutant, Path(folder))
        paths = [f"{folder}/pipelines", str(ROOT), str(ROOT / "tests")]
        done = subprocess.run(
            [sys.executable, "-m", "tests.conformance.mutants", "--replay", mutant.engine],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=LONGEST_S,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("differs: ", "all agree: "))]
    found = lines[-1] if lines else f"fails: {done.stderr.strip().splitlines()[-1:]}"
    survived = found.startswith("all agree: ")
    if mutant.old == mutant.new and not survived:
        msg = f"recordings differ without any change: {found}"
        raise ValueError(msg)
    took = f"{time.monotonic() - begin:.0f} s"
    print(f"{'SURVIVED' if survived else 'killed'} | {mutant.engine} | {mutant.module} | `{mutant.old}` -> `{mutant.new}`"
          f" | {found[:90]} | {took}", flush=True)  # fmt: skip
    return None if survived else found


def _copy_changed(mutant: Mutant, folder: Path) -> None:
    """Copy the package into a folder, with the change.

    Raises:
        ValueError: when the module does not have the text.
    """
    copy = folder / PACKAGE.relative_to(ROOT)
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "expectations").symlink_to(ROOT / "expectations")
    module = copy / mutant.module
    text = module.read_text()
    if mutant.old not in text:
        msg = f"{mutant.module} has no text {mutant.old!r}"
        raise ValueError(msg)
    module.write_text(text.replace(mutant.old, mutant.new))


def _replay(engine: str) -> None:
    """Replay recordings on an engine until one differs; this runs in the process with the changed package."""
    import backstream
    from backstream.conformance.comparison import find_difference
    from backstream.conformance.run_engine import RunEngine
    from backstream.spark.session import SMALL_DATA_SETTINGS, local_session

    if Path(backstream.__file__).is_relative_to(PACKAGE):
        msg = "the package is not the changed copy"
        raise ValueError(msg)
    run = RunEngine(local_session("mutants", SMALL_DATA_SETTINGS, input_bytes=0), engine)
    count = 0
    for line in _recordings():
        count += 1
        differ = find_difference([line], run).differ
        if differ:
            print(differ[0].splitlines()[0], flush=True)
            return
    print(f"all agree: {count} recordings", flush=True)


def _recordings() -> Iterator[Line]:
    """Yield the recordings that cover all pairs of features."""
    yield from cover_pairs(all_recordings())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--replay"]:
        _replay(sys.argv[2])
    else:
        sys.exit(main("".join(sys.argv[1:2])))
