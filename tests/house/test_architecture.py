"""The page on the architecture names files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "pipelines" / "backstream"
PAGE = REPOSITORY / "docs" / "architecture.md"


def test_each_function_on_the_page_exists() -> None:
    named = re.findall(r"`([a-z_/]+\.py):(\w+)`", PAGE.read_text(encoding="utf-8"))

    missing = [f"{file}:{name}" for file, name in named if name not in top_names(PACKAGE / file)]

    assert len(named) > 20
    assert missing == []


def top_names(file: Path) -> set[str]:
    """Return the names of the functions and classes of a module."""
    if not file.is_file():
        return set()
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, kinds)}
