"""Publish a written plan in a process of its own; at a barrier, or killed at a point, when asked.

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
from backstream.lake import publish as module
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan

POLL_S = 0.002


def main() -> None:
    """Print what became of the publication."""
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
        print(error)  # noqa: T201 - what the test reads
    else:
        print("already" if done.already else "published")  # noqa: T201 - what the test reads


def wait_at(barrier: Path) -> None:
    """Say that this process is ready, and wait for the word."""
    (barrier / f"ready-{os.getpid()}").touch()
    while not (barrier / "go").exists():
        time.sleep(POLL_S)


def arm(point: str) -> None:
    """Have this process killed at a point of the commit of the windows."""
    catalog: Any = SqlCatalog
    publishing: Any = module
    if point == "side_tables_written":
        publishing._commit_windows = die  # noqa: SLF001 - the fault is injected here
    elif point == "metadata_written":
        catalog._write_metadata = staticmethod(then_die(catalog._write_metadata))  # noqa: SLF001 - the same
    else:
        publishing.commit_snapshot = then_die(publishing.commit_snapshot)


def then_die(work: Callable[..., Any]) -> Callable[..., Any]:
    """The work, and death when it was done on the windows' table."""

    def done(*arguments: Any, **named: Any) -> Any:
        result = work(*arguments, **named)
        if "/flights/" in str((arguments, named)):
            die()
        return result

    return done


def die(*_: Any) -> Any:
    """As `kill -9` does: no cleanup, no goodbye."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
