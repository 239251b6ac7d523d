"""Read docstrings from source code, where Python keeps none at run time."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a module: its name, its text if it is a literal, and the docstring below it."""

    name: str
    value: str | None
    docstring: str


def field_docstrings(owner: type) -> dict[str, str]:
    """Return the docstrings below the fields or members of a class, those of its base classes included."""
    docstrings: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if not base.__module__.startswith("backstream"):
            continue
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base)))
        (definition,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
        docstrings |= {constant.name: constant.docstring for constant in constants(definition.body)}
    return docstrings


def module_docstrings(module: ModuleType) -> dict[str, str]:
    """Return the docstrings below the constants of a module."""
    tree = ast.parse(inspect.getsource(module))
    return {constant.name: constant.docstring for constant in constants(tree.body)}


def constants(body: Sequence[ast.stmt]) -> Iterator[Constant]:
    """Yield the constants of a module or class with their docstrings; an empty text is no docstring."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        docstring = _text(following.value) if isinstance(following, ast.Expr) else None
        for name, value in _assignments(statement):
            yield Constant(name, _text(value), docstring or "")


def _assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a statement assigns, with their values: `a = 1`, `a: int = 1`, `a, b = 1, 2`."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id, statement.value
    elif isinstance(statement, ast.Assign):
        (target, value) = (statement.targets[0], statement.value)
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            names = (name.id for name in target.elts if isinstance(name, ast.Name))
            yield from zip(names, value.elts, strict=False)


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
