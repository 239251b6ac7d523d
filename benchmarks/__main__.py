"""Measure backstream against what one would write by hand and against other engines, and print ratios.

make bench                                                # 2,000,000 events, with Structured Streaming
make bench ARGS="--only growth"                           # each command over larger and larger published tables
make bench ARGS="--only job --save"                       # whole jobs beside hand-written scripts, at full size
make bench ARGS="--only job --shapes dense --rows 2000000"
make bench ARGS="--rows 25000000 --peers all --save"      # the figures of docs/benchmarks.md
python -m benchmarks --page docs/benchmarks.md            # writes the saved figures into the page
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from backstream.variables import CATALOG_VARIABLE
from benchmarks import comparisons, growth, results, shapes, table, whole_jobs
from benchmarks.comparisons import Section
from benchmarks.kinds import PROGRESS, Setting, by_kind
from benchmarks.peers import registry
from benchmarks.results import Results

ROWS = 2_000_000
SAVED = Path(__file__).parent / "measured"
"""The folder of saved results, with one file for each size and choice of sections."""
_GROWTH_ROWS = 100_000_000
_ASKED_FOR = (Section.JOB, Section.GROWTH)
"""Sections that the benchmark measures only if you name them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print, or write the page. Return the exit status: 1 after a failure or different results."""
    options = _parser().parse_args(arguments)
    if options.page:
        return _write_page(options.page)
    # The lake of a benchmark is in a separate folder, never in a catalog with other data.
    os.environ.pop(CATALOG_VARIABLE, None)
    peers = registry.of_families(_families(options.peers))
    sections = options.only or [section for section in Section if section not in _ASKED_FOR]
    selection = comparisons.wanted(sections, {peer.name for peer in peers})
    jobs = comparisons.of_shapes(options.shapes) if Section.JOB in sections else []
    compared = {name for comparison in selection for name in (comparison.job, comparison.base)}
    record = Results(0, 0, options.heap, results.today(), results.computer())
    rows = options.rows or (ROWS if selection else shapes.ROWS)
    setting = Setting(rows, options.rounds, options.heap, options.folder.resolve(), not options.no_scripts)
    if selection:
        record = by_kind(setting, selection, [peer.name for peer in peers if peer.name in compared])
    if jobs:
        job_results = whole_jobs.measured(setting, options.shapes, PROGRESS.print)
        record = record.joined(job_results) if selection else job_results
    if Section.GROWTH in sections:
        sizes = growth.scaled(options.growth_rows)
        record.costs.extend(
            growth.costs(PROGRESS.print, options.folder.resolve() / "growth", options.rounds, sizes)
        )
    table.shown(record, [*jobs, *selection], Console(width=None if sys.stdout.isatty() else 200))
    if options.save:
        some_shapes = options.shapes if jobs and set(options.shapes) < set(shapes.NAMES) else []
        file = SAVED / f"{'-'.join([str(record.rows), *sections, *some_shapes])}.json"
        record.write(file)
        PROGRESS.print(f"saved as {file}")
    return 1 if record.failed or record.disagreements else 0


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


def _families(names: Sequence[str]) -> set[str]:
    """Return the chosen families. "none" overrides "all", and "all" overrides names."""
    if "none" in names:
        return set()
    return set(registry.FAMILIES) if "all" in names else set(names)


def saved() -> list[Results]:
    """Return all saved results: whole jobs first, then by size, the largest first."""
    return sorted(
        map(Results.read, sorted(SAVED.glob("*.json"))), key=lambda result: (not result.jobs, -result.rows)
    )


def _write_page(page: Path) -> int:
    all_results = saved()
    if not all_results:
        PROGRESS.print(f"no results in {SAVED}\n\nhint: make bench ARGS='--rows 25000000 --peers all --save'")
        return 1
    table.write_page(page, all_results, comparisons.ALL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
