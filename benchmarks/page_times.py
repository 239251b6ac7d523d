"""Measure the processor time of each page in the server, over a long history of many datasets."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from backstream.pages import lists, views
from backstream.pages.filters import Filter
from backstream.pages.render import Page
from backstream.pages.store import PageStore
from backstream.runs.home import Home
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE
from benchmarks.long_history import LARGEST, write_history
from benchmarks.results import Figure

_LIMIT_MS = 1_000.0
_ROUNDS = 5
_DAG_ID = f"backfill_{LARGEST}"
_DEFINITIONS = "BACKSTREAM_DEFINITIONS"

Say = Callable[[str], None]


def figures(say: Say, folder: Path | None = None) -> list[Figure]:
    """Return the time of the first and of a later request for each page.

    Args:
        say: receives each measurement as a line of text.
        folder: an empty folder for the history; by default a temporary one.
    """
    with tempfile.TemporaryDirectory(prefix="backstream-pages-") as temporary:
        place = folder or Path(temporary)
        write_history(Home(place / "home"), place / "definitions")
        with _environment(place):
            found = list(_measure(Home(place / "home"), place / "definitions"))
    for figure in found:
        say(f"{figure.what}: {figure.value:.0f} {figure.unit}")
    return found


def pages(dag_ids: set[str]) -> Mapping[str, Callable[[PageStore], Page]]:
    """Return each page of the history as a function of the store."""
    narrow = Filter(text="jfk", since="2023-01-01", until="2023-07-01")
    return {
        "Backfills": lambda store: lists.overview_page(store, dag_ids),
        "Backfills, searched": lambda store: lists.overview_page(store, dag_ids, Filter(text="19")),
        "Runs": lambda store: lists.runs_page(store, dag_ids),
        "Runs, filtered": lambda store: lists.runs_page(store, dag_ids, None, narrow),
        "Runs of a dataset": lambda store: lists.runs_page(store, {_DAG_ID}, _DAG_ID),
        "Windows": lambda store: views.windows_page(store, _DAG_ID, may_run=True),
        "a day": lambda store: views.day_page(store, _DAG_ID, "2024-12-31", may_run=True),
        "Checks": lambda store: lists.checks_page(store, _DAG_ID),
    }


def _measure(home: Home, definitions: Path) -> Iterator[Figure]:
    """Measure the processor time of this process, which other programs on the machine do not change much."""
    dag_ids = {f"backfill_{file.stem}" for file in definitions.glob("*.toml")}
    for name, build in pages(dag_ids).items():
        times_ms = [_milliseconds(home, build) for _ in range(_ROUNDS)]
        yield Figure(f"page {name}, first request of a server", times_ms[0], "ms")
        yield Figure(f"page {name}", max(times_ms[1:]), "ms", _LIMIT_MS)


def _milliseconds(home: Home, build: Callable[[PageStore], Page]) -> float:
    begin = time.process_time()
    build(PageStore.from_home(home))
    return (time.process_time() - begin) * 1_000


@contextmanager
def _environment(place: Path) -> Iterator[None]:
    """Set the home and the definitions of this process for the duration of a block."""
    changed = {HOME_VARIABLE: str(place / "home"), _DEFINITIONS: str(place / "definitions")}
    before = {name: os.environ.get(name) for name in (*changed, CATALOG_VARIABLE)}
    os.environ.pop(CATALOG_VARIABLE, None)
    os.environ |= changed
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
