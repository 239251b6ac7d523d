"""Names that a stranger can look up: commands are verbs, queries are nouns, and no name has two meanings."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "pipelines" / "backstream"
PAST_TENSES = frozenset(
    [
        "told",
        "heard",
        "said",
        "met",
        "known",
        "found",
        "kept",
        "made",
        "written",
        "taken",
        "given",
        "gone",
        "left",
        "held",
        "seen",
        "drawn",
        "done",
        "begun",
        "sent",
        "shown",
        "chosen",
        "lost",
        "brought",
        "thought",
        "meant",
    ]
)
"""Participles that do not end in `ed`, except those that are also a present tense (`read`, `split`, `cut`)."""
WORDS_OF_SPEECH = frozenset(
    ["tell", "told", "tells", "say", "says", "said", "hear", "heard", "hears", "asked", "asks"]
)
ENTRY_POINTS = {"main"}
"""The one name that each program has."""


LIMITS = frozenset(["MOST", "LEAST", "FEW"])
"""Words that constants replace by `MAX` and `MIN`."""


def definitions(source: str) -> Iterator[tuple[str, bool]]:
    """Yield the public functions and classes of a module, and whether each is a function."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name[0] != "_":
            yield node.name, not isinstance(node, ast.ClassDef)


def inner_functions(source: str) -> Iterator[str]:
    """Yield the private functions, the methods, and the nested functions of a module, without a leading `_`."""
    public = [name for name, _ in definitions(source)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in public:
            yield node.name.strip("_")


def constants(source: str) -> Iterator[str]:
    """Yield the names in capital letters that a module assigns."""
    for node in ast.parse(source).body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name) and name.id.isupper())


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), path.read_text(encoding="utf-8")


def problem(name: str, *, is_function: bool) -> str | None:
    """Return the reason why a public name is hard to look up, or None."""
    words = name.split("_")
    if is_function and len(words) == 1 and (name.endswith("ed") or name in PAST_TENSES):
        return f"{name} is a participle: a command is an imperative verb, a query a noun"
    if spoken := WORDS_OF_SPEECH.intersection(words):
        return f"{name} has a verb of speech: {', '.join(sorted(spoken))}"
    return None


def test_no_public_name_is_a_participle_or_a_verb_of_speech() -> None:
    assert [
        f"{module}: {reason}"
        for module, source in modules()
        for name, is_function in definitions(source)
        if (reason := problem(name, is_function=is_function))
    ] == []


def test_no_method_or_inner_function_is_a_participle_or_has_a_verb_of_speech() -> None:
    assert [
        f"{module}: {reason}"
        for module, source in modules()
        for name in inner_functions(source)
        if (reason := problem(name, is_function=True))
    ] == []


def test_constants_name_limits_by_max_and_min() -> None:
    assert [
        f"{module}: {name}"
        for module, source in modules()
        for name in constants(source)
        if LIMITS.intersection(name.split("_"))
    ] == []


def test_no_two_modules_define_the_same_public_name() -> None:
    homes = defaultdict(list)
    for module, source in modules():
        for name, _ in definitions(source):
            homes[name].append(module)
    assert {name: found for name, found in homes.items() if len(found) > 1 and name not in ENTRY_POINTS} == {}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def committed(): ...", "committed is a participle: a command is an imperative verb, a query a noun"),
        ("def told(): ...", "told is a participle: a command is an imperative verb, a query a noun"),
        ("def days_said(): ...", "days_said has a verb of speech: said"),
        ("class Shared: ...", None),
        ("def commit_snapshot(): ...", None),
        ("def _kept(): ...", None),
    ],
)
def test_the_rule_finds_what_it_is_for(source: str, reason: str | None) -> None:
    reasons = [problem(name, is_function=is_function) for name, is_function in definitions(source)]
    assert reasons == ([] if source.startswith("def _") else [reason])


def test_the_rules_look_into_classes_and_functions_and_at_constants() -> None:
    source = """
_MOST_FILES, KEPT = 40, 20

def make():
    def told(): ...

class Counts:
    def dropped(self): ...
    def _sorted(self): ...
    def _merge(self): ...
"""
    assert [name for name in inner_functions(source) if problem(name, is_function=True)] == [
        "told",
        "dropped",
        "sorted",
    ]
    assert list(constants(source)) == ["_MOST_FILES", "KEPT"]
