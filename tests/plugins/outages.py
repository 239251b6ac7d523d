"""Visit each page while a system does not respond. The tests run this in a separate process."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.plugins.large_home import PAGES, fill
from tests.plugins.visit import visitor

from backstream.runs.home import Home

RUN = "run?dag_id=backfill_flights&run_id=published&state=true"
EXPLAIN = "explain?dag_id=backfill_flights&window=2016-01-05T10:00Z"
CSV = "runs?dag_id=backfill_flights&format=csv"
VISITED = (*PAGES, RUN, EXPLAIN, CSV)
AT_ONCE = 12
"""The requests that come at the same time."""


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold an exclusive lock on an SQLite database, to which no other connection is open."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # otherwise a write-ahead log can be read
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@contextmanager
def gone(file: Path) -> Iterator[None]:
    """Take a file away."""
    aside = file.with_suffix(".aside")
    file.rename(aside)
    try:
        yield
    finally:
        aside.rename(file)


@contextmanager
def silent_catalog() -> Iterator[None]:
    """Let the address of the catalog be a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.environ["BACKSTREAM_CATALOG_URI"] = f"http://127.0.0.1:{server.getsockname()[1]}"
        try:
            yield
        finally:
            del os.environ["BACKSTREAM_CATALOG_URI"]


def waiting() -> int:
    """Return the number of threads that wait for a system."""
    return sum(thread.name.startswith("backstream: ") for thread in threading.enumerate())


def told(visit: Callable[..., Any]) -> dict[str, Any]:
    """Return seconds, status, and text of each page, and the most threads that waited at the same time."""

    def timed(page: str) -> list[Any]:
        began_s = time.monotonic()
        answer = visit(page)
        return [time.monotonic() - began_s, answer.status_code, answer.text]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        crowd = list(pool.map(timed, ["overview"] * AT_ONCE))
    threads = waiting()
    pages = {page: timed(page) for page in VISITED}
    return {"pages": pages, "crowd": [seconds for seconds, *_ in crowd], "threads": max(threads, waiting())}


def main(folder: Path) -> None:
    """Print what the pages answer in each outage, and before and after all of them."""
    from airflow import settings

    home, found = Home(folder / "home"), {}
    fill(home, folder / "definitions", "no plan")
    with visitor(folder) as visit:
        for page in VISITED:
            visit(page)
        found["none"] = told(visit)
        for name, outage in {
            "locked": locked(home.path / "catalog.db"),
            "gone": gone(home.path / "catalog.db"),
            "airflow": locked(folder / "airflow.db"),
            "silent": silent_catalog(),
        }.items():
            engine: Any = settings.engine
            engine.dispose()
            with outage:
                found[name] = told(visit)
            until_s = time.monotonic() + 90
            while waiting() and time.monotonic() < until_s:
                time.sleep(0.1)
        found["after"] = told(visit)
    print(json.dumps(found))  # noqa: T201 - the answer
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
