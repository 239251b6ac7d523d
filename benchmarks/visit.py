"""One page of a dataset, or the check for days to restate, in a separate process.

    python -m benchmarks.visit growth "windows page"

The process imports the same modules as a server or a task, and no others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from backstream.definition.folder import find_definition
from backstream.runs.home import Home


def _datasets_page(name: str) -> str:
    from backstream.pages import lists
    from backstream.pages.store import PageStore

    return lists.overview_page(PageStore.from_home(Home.from_environment()), {f"backfill_{name}"}).html


def _windows_page(name: str) -> str:
    from backstream.pages import views
    from backstream.pages.store import PageStore

    return views.windows_page(PageStore.from_home(Home.from_environment()), f"backfill_{name}", may_run=True).html


def _restate_check(name: str) -> str:
    from backstream.workflow.late_data.restate import find_restatements

    return find_restatements(find_definition(name), Home.from_environment()).summary


VISITS: Mapping[str, Callable[[str], str]] = {
    "datasets page": _datasets_page,
    "windows page": _windows_page,
    "restate check": _restate_check,
}


def main(name: str, page: str) -> int:
    """Create the page. Return the exit status: 1 if the text lacks the name of the dataset."""
    text = VISITS[page](name)
    print(f"{page}: {len(text):,} letters")
    return 0 if name in text else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
