"""One page of a dataset, or the check for days to restate, in a process of its own.

    python -m benchmarks.visit growth "windows page"

It imports what a server or a task would, and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from backstream.runs.home import Home, definitions_folder


def _datasets_page(name: str) -> str:
    from backstream.pages import views
    from backstream.pages.store import PageStore

    return views.overview_page(PageStore.from_home(Home.from_environment()), {f"backfill_{name}"}).html


def _windows_page(name: str) -> str:
    from backstream.pages import views
    from backstream.pages.store import PageStore

    return views.windows_page(PageStore.from_home(Home.from_environment()), f"backfill_{name}", may_run=True).html


def _restate_check(name: str) -> str:
    from backstream.workflow import find_restatements

    return find_restatements(definitions_folder() / f"{name}.toml", Home.from_environment()).summary


VISITS: Mapping[str, Callable[[str], str]] = {
    "datasets page": _datasets_page,
    "windows page": _windows_page,
    "restate check": _restate_check,
}


def main(name: str, page: str) -> int:
    """Make it; the exit status is 1 when it says nothing of the dataset."""
    shown = VISITS[page](name)
    print(f"{page}: {len(shown):,} letters")
    return 0 if name in shown else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
