"""Measure backstream against what one would write by hand and against other engines, and print ratios.

make bench                                                # 2,000,000 events, with Structured Streaming
make bench ARGS="--only publication"                      # planning and publishing at size, without Spark
make bench ARGS="--only growth"                           # each command over ever larger published tables
make bench ARGS="--only airflow"                          # one day of flights in a real Airflow, task by task
make bench ARGS="--only job --save"                       # whole jobs beside scripts by hand, at full size
make bench ARGS="--only job --shapes dense --rows 2000000"
make bench ARGS="--rows 25000000 --peers all --save"      # what docs/benchmarks.md shows
python -m benchmarks --page docs/benchmarks.md            # writes the saved figures into the page
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from backstream.runs.home import CATALOG_VARIABLE
from benchmarks import comparisons, growth, one_day, publication, results, shapes, table, whole_jobs
from benchmarks.comparisons import Section
from benchmarks.kinds import PROGRESS, Setting, by_kind
from benchmarks.peers import registry
from benchmarks.results import Results

ROWS = 2_000_000
SAVED = Path(__file__).parent / "measured"
"""A file for each size and choice of sections."""
_GROWTH_ROWS = 100_000_000
_ASKED_FOR = (Section.JOB, Section.GROWTH, Section.AIRFLOW)
"""Sections that are measured only where they are named."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print, or write the page; the exit status is 1 when something failed, or results differ."""
    options = _parser().parse_args(arguments)
    if options.page:
        return _write_page(options.page)
    # The lake of a benchmark lies in a folder of its own, never in a catalog that somebody uses.
    os.environ.pop(CATALOG_VARIABLE, None)
    peers = registry.of_families(_families(options.peers))
    sections = options.only or [each for each in Section if each not in _ASKED_FOR]
    wanted = comparisons.wanted(sections, {peer.name for peer in peers})
    jobs = comparisons.of_shapes(options.shapes) if Section.JOB in sections else []
    bases = {each.base for each in wanted}
    measured = Results(0, 0, options.heap, results.today(), results.computer())
    rows = options.rows or (ROWS if wanted else shapes.ROWS)
    setting = Setting(rows, options.rounds, options.heap, options.folder.resolve(), not options.no_scripts)
    if wanted:
        measured = by_kind(setting, wanted, [peer.name for peer in peers if peer.name in bases])
    if jobs:
        found = whole_jobs.measured(setting, options.shapes, PROGRESS.print)
        measured = measured.joined(found) if wanted else found
    if Section.PUBLICATION in sections:
        measured.figures.extend(publication.figures(PROGRESS.print))
    if Section.GROWTH in sections:
        sizes = growth.scaled(options.growth_rows)
        measured.costs.extend(
            growth.costs(PROGRESS.print, options.folder.resolve() / "growth", options.rounds, sizes)
        )
    if Section.AIRFLOW in sections:
        found_times = one_day.task_times(PROGRESS.print, options.folder.resolve() / "airflow", options.rounds)
        measured.tasks.extend(found_times)
    table.shown(measured, [*jobs, *wanted], Console(width=None if sys.stdout.isatty() else 200))
    if options.save:
        file = SAVED / f"{measured.rows}-{'-'.join(sections)}.json"
        measured.write(file)
        PROGRESS.print(f"saved as {file}")
    return 1 if measured.failed or measured.disagreements else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rows",
        type=_positive,
        help=f"events (default {ROWS:,}); of the largest shape with --only job (default {shapes.ROWS:,})",
    )
    parser.add_argument("--rounds", type=_positive, default=3, help="measured rounds (default 3)")
    parser.add_argument("--only", nargs="+", type=Section, metavar="SECTION", help=f"of {', '.join(Section)}")
    parser.add_argument(
        "--growth-rows",
        type=_positive,
        default=_GROWTH_ROWS,
        help="published rows of the largest table of `growth` (default 100,000,000)",
    )
    parser.add_argument(
        "--shapes", nargs="+", choices=shapes.NAMES, default=[*shapes.NAMES], help="of whole jobs (default all)"
    )
    parser.add_argument("--no-scripts", action="store_true", help="of whole jobs: leave out the scripts by hand")
    choices = ["all", "none", *registry.FAMILIES]
    parser.add_argument(
        "--peers", nargs="+", choices=choices, default=["structured-streaming"], help="other engines"
    )
    parser.add_argument("--heap", type=_heap, default="6g", help="of each JVM, taken at once (default 6g)")
    parser.add_argument(
        "--folder", type=Path, default=Path(".backstream/benchmarks"), help="for data and environments"
    )
    parser.add_argument("--save", action="store_true", help=f"keep the results in {SAVED.name}/, for the page")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="measure nothing: write saved results into a page"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        msg = f"must be at least 1, got {text}"
        raise argparse.ArgumentTypeError(msg)
    return value


def _heap(text: str) -> str:
    registry.half_in_mb(text)
    return text


def _families(asked: Sequence[str]) -> set[str]:
    """None wins over all, and all over names."""
    if "none" in asked:
        return set()
    return set(registry.FAMILIES) if "all" in asked else set(asked)


def saved() -> list[Results]:
    """All that was kept: whole jobs first, the largest first."""
    return sorted(map(Results.read, sorted(SAVED.glob("*.json"))), key=lambda each: (not each.jobs, -each.rows))


def _write_page(page: Path) -> int:
    found = saved()
    if not found:
        PROGRESS.print(f"no results in {SAVED}\n\nhint: make bench ARGS='--rows 25000000 --peers all --save'")
        return 1
    table.write_page(page, found, comparisons.ALL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
