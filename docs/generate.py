"""Write the reference pages from the code: `.venv/bin/python -m docs.generate`.

`--check` writes nothing: it prints the pages that are not up to date, and exits with status 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generator import (
    checks,
    commands,
    dag_parameters,
    definition_keys,
    environment_variables,
    packages,
    python_api,
    run_events,
    tables,
)

FOLDER = Path(__file__).parent / "reference"
COMMAND = ".venv/bin/python -m docs.generate"
PAGES: Mapping[str, Callable[[], str]] = {
    "definition-keys.md": definition_keys.page,
    "commands.md": commands.page,
    "checks.md": checks.page,
    "tables.md": tables.page,
    "environment-variables.md": environment_variables.page,
    "dag-parameters.md": dag_parameters.page,
    "python-api.md": python_api.page,
    "run-events.md": run_events.page,
    "packages.md": packages.page,
}


def find_outdated_pages(pages: Mapping[str, str], folder: Path = FOLDER) -> list[str]:
    """Return the names of pages in the folder that differ from the generated text, are missing, or are extra."""
    files = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.md")}
    return sorted(name for name in {*pages, *files} if pages.get(name) != files.get(name))


def main() -> None:
    """Write or check all pages."""
    parser = argparse.ArgumentParser(description="Write the reference pages from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is outdated")
    is_check = parser.parse_args().check
    pages = {name: page() for name, page in PAGES.items()}
    outdated = find_outdated_pages(pages)
    if is_check and outdated:
        print(f"not up to date in docs/reference: {', '.join(outdated)}\n\nhint: run {COMMAND}")
        sys.exit(1)
    for name in () if is_check else outdated:
        if name in pages:
            (FOLDER / name).write_text(pages[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
        print(f"updated docs/reference/{name}")


if __name__ == "__main__":
    main()
