"""Publish a written plan in a separate process, which can wait at a barrier or be killed at a point.

Usage: publisher.py PLAN_FILE [--barrier FOLDER] [--die POINT]
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from backstream.errors import ConflictError
from backstream.lake.publication import publish as module
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan

POLL_S = 0.002


def main() -> None:
    """Print the outcome of the publication."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", type=Path)
    parser.add_argument("--barrier", type=Path)
    parser.add_argument("--die", choices=["side_tables_written", "metadata_written", "committed"])
    options = parser.parse_args()
    plan = Plan.read(options.plan)
    manifests = [Manifest.read(plan.folder.manifest(chunk.chunk_id)) for chunk in plan.chunks]
    if options.die:
        arm(options.die)
    if options.barrier:
        wait_at(options.barrier)
    try:
        done = module.publish_range(plan, manifests)
    except ConflictError as error:
        print(error)  # noqa: T201 - the test reads it
    else:
        print("already" if done.already else "published")  # noqa: T201 - the test reads it


def wait_at(barrier: Path) -> None:
    """Signal that this process is ready, and wait for the start signal."""
    (barrier / f"ready-{os.getpid()}").touch()
    while not (barrier / "go").exists():
        time.sleep(POLL_S)


def arm(point: str) -> None:
    """Kill this process at a point of the commit of the windows."""
    catalog: Any = SqlCatalog
    publishing: Any = module
    if point == "side_tables_written":
        publishing._commit_windows = die  # noqa: SLF001 - the fault is injected here
    elif point == "metadata_written":
        catalog._write_metadata = staticmethod(then_die(catalog._write_metadata))  # noqa: SLF001 - the same
    else:
        publishing.commit_snapshot = then_die(publishing.commit_snapshot)


def then_die(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the work and then kills the process, if it was for the table of windows."""

    def done(*arguments: Any, **named: Any) -> Any:
        result = work(*arguments, **named)
        if "/flights/" in str((arguments, named)):
            die()
        return result

    return done


def die(*_: Any) -> Any:
    """Kill this process without cleanup, as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
