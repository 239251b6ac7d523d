"""Docstrings begin with a thing or an action, not with a question word, so that a reader understands them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
ROOTS = ("pipelines", "dags", "plugins", "demo", "benchmarks")
OPENINGS = frozenset("What Which Who Whose How Whether Where When Such Those".split())  # noqa: SIM905 - a list of words


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string that documents a module, class, function or variable."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield node.lineno, text.strip()


def opens_badly(text: str) -> bool:
    """Return whether a docstring begins with a question word."""
    first = re.match(r"\w+", text)
    return first is not None and first[0] in OPENINGS


def test_no_docstring_begins_with_a_question_word() -> None:
    assert [
        f"{path.relative_to(REPOSITORY)}:{line}: {text.partition(chr(10))[0]}"
        for root in ROOTS
        for path in sorted((REPOSITORY / root).rglob("*.py"))
        for line, text in docstrings(path.read_text(encoding="utf-8"))
        if opens_badly(text)
    ] == []


def test_the_rule_finds_what_it_is_for() -> None:
    source = 'def told():\n    """What is told."""\n\n\nLIMIT = 1\n"""The limit."""\n'
    assert [(line, opens_badly(text)) for line, text in docstrings(source)] == [(6, False), (2, True)]
