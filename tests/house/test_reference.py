"""The reference pages are generated from the code, and show what the code is now."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from docs.generate import find_outdated_pages
from docs.generator.docstrings import constants, field_docstrings
from docs.generator.markdown import anchor, prose, table

from backstream.definition.run_sections import Backfill

REPOSITORY = Path(__file__).parents[2]


def test_the_reference_pages_are_up_to_date(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BACKSTREAM_")}
    ended = subprocess.run(
        [sys.executable, "-m", "docs.generate", "--check"],
        cwd=REPOSITORY,
        env={**environment, "AIRFLOW_HOME": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_page_that_differs_is_missing_or_is_extra_is_outdated(tmp_path: Path) -> None:
    for name, text in (("same.md", "text"), ("changed.md", "old"), ("extra.md", "text")):
        (tmp_path / name).write_text(text)
    pages = {"same.md": "text", "changed.md": "new", "missing.md": "text"}

    assert find_outdated_pages(pages, tmp_path) == ["changed.md", "extra.md", "missing.md"]


def test_docstrings_are_read_below_fields_and_constants() -> None:
    source = 'A = "a"\n"""The first."""\nB, C = "b", 1\nD: int = 2\n"""The last."""\n'

    assert [(each.name, each.value, each.docstring) for each in constants(ast.parse(source).body)] == [
        ("A", "a", "The first."),
        ("B", "b", ""),
        ("C", None, ""),
        ("D", None, "The last."),
    ]
    assert field_docstrings(Backfill)["mode"] == "The mode of runs that don't set one."


def test_cells_and_prose_are_safe_in_markdown() -> None:
    assert table(["a"], [["x|y\n z"]]) == "| a |\n|---|\n| x\\|y z |"
    assert table(["a"], []) == ""
    assert prose("a <b> and `<c>`") == "a &lt;b> and `<c>`"
    assert anchor("`[quality.expected]`") == "qualityexpected"


def test_every_page_of_the_documentation_is_in_the_index() -> None:
    folder = REPOSITORY / "docs"
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = [*folder.glob("*.md"), *(folder / "reference").glob("*.md"), folder / "decisions" / "README.md"]
    links = {str(page.relative_to(folder)) for page in pages} - {"README.md"}
    assert [link for link in sorted(links) if f"({link})" not in index] == []
