"""Docstrings begin with a thing or an action, and documents have short sentences with plain words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.house.sentences import find_faults, sentences

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = ("*.md", "docs/**/*.md")
STYLE_GUIDE = REPOSITORY / "docs" / "style.md"
"""It names the words that it bans."""
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


def test_documents_have_short_sentences_without_banned_words() -> None:
    paths = {path for pattern in DOCUMENTS for path in REPOSITORY.glob(pattern)} - {STYLE_GUIDE}
    assert [
        f"{path.relative_to(REPOSITORY)}: {fault}"
        for path in sorted(paths)
        for fault in find_faults(path.read_text(encoding="utf-8"))
    ] == []


def test_a_document_is_cut_into_sentences() -> None:
    document = """
# A title

One sentence, e.g., of
two lines. `code` begins another; a semicolon ends it.

```text
Whoever reads code.
```

| a cell | **Bold.** [A link](https://example.com/told). |
* an item
  continues
"""
    assert [sentence.strip() for sentence in sentences(document) if sentence.strip()] == [
        "A title",
        "One sentence, such as of two lines.",
        "` begins another",
        "a semicolon ends it.",
        "a cell",
        "**Bold.",
        "A link.",
        "an item continues",
    ]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("The plan lists its files.", []),
        ("The plan tells its files.", ["'tells': The plan tells its files."]),
        (f"{'word ' * 25}end.", [f"26 words: {'word ' * 25}end."]),
        (f"{'word ' * 24}end. Another sentence.", []),
    ],
)
def test_a_long_sentence_and_a_banned_word_are_faults(text: str, faults: list[str]) -> None:
    assert list(find_faults(text)) == faults
