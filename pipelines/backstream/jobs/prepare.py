"""Define the Spark job that prepares the new files of a source.

spark-submit pipelines/backstream/jobs/prepare.py --definition DEFINITION.toml
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backstream.jobs.job_process import end_with_task, run_job
from backstream.runs.choices import RunnerName
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.text import print_text
from backstream.workflow.java_end import explain_java_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the source of a definition.

    Returns:
        The exit status: 0 when all files are prepared, 3 after an error that a retry cannot fix, else 1.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--definition", type=Path, required=True, help="TOML file of the definition")
    parser.add_argument("--since", help="start of the range of a run; without a range, that of earlier runs")
    parser.add_argument("--until", help="end of the range, excluded")
    parser.add_argument("--mode", type=Mode, help="mode of the run; by default that of the definition")
    options = parser.parse_args(arguments)
    end_with_task()
    return run_job(lambda: _prepare(options), lambda: Home.from_environment().errors)


def _prepare(options: argparse.Namespace) -> None:
    from backstream.definition.loader import load_definition
    from backstream.workflow.inputs.prepare import prepare_source
    from backstream.workflow.plan.allowed_ranges import needed_times
    from backstream.workflow.requested_range import parse_range
    from backstream.workflow.runners import SparkRunner, start_runner

    path, needed = options.definition, None
    if options.since:
        definition, requested = load_definition(path), parse_range(options.since, options.until)
        needed = needed_times(requested.interval, definition, options.mode or definition.backfill.mode)
    name = f"backstream prepare {path.stem}"
    home = Home.from_environment()
    # Executors can't write into a home that they don't share.
    master = "" if home.is_shared else "local[*]"
    with explain_java_end(lambda: (tomllib.loads(path.read_text(encoding="utf-8")), str(path))):
        if load_definition(path).backfill.runner == "local":
            runner = start_runner(path, RunnerName.LOCAL)
        else:
            runner = SparkRunner(lambda: _start_session(name, master))
        try:
            prepared = prepare_source(path, home, runner, _print_line, needed)
        finally:
            runner.abandon()
    if prepared is None:
        _print_line("no new files to prepare")


def _start_session(name: str, master: str) -> SparkSession:
    from backstream.spark.session import session_in, submitted_context

    return session_in(submitted_context(name, master))


def _print_line(line: str) -> None:
    print_text(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
