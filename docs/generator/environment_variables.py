"""Describe the environment variables, from the constants that hold their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import backstream
from docs.generator.docstrings import Constant, constants
from docs.generator.markdown import code, document, sentence, table

_PACKAGE = Path(backstream.__file__).parent
_NAME = re.compile(r"(^|_)VARIABLE$")
_OWN = "BACKSTREAM_"
_INTRODUCTION = """\
All processes of an installation need the same values: the scheduler, the workers, and the API server of Airflow,
and the CLI."""


def page() -> str:
    """Return the page."""
    found = sorted(_variables(), key=lambda row: (not row[0].startswith(_OWN), row[0]))
    own = [_row(*row) for row in found if row[0].startswith(_OWN)]
    other = [_row(*row) for row in found if not row[0].startswith(_OWN)]
    headers = ["variable", "description", "module"]
    others = ["## Variables of other programs", "backstream also reads these variables.", table(headers, other)]
    return document("Environment variables", _INTRODUCTION, table(headers, own), *(others if other else []))


def _variables() -> Iterator[tuple[str, Constant, str]]:
    """Yield the name of each variable, its constant, and the module of the constant."""
    for file in sorted(_PACKAGE.rglob("*.py")):
        for constant in constants(ast.parse(file.read_text(encoding="utf-8")).body):
            if _NAME.search(constant.name) and constant.value:
                yield constant.value, constant, ".".join(file.relative_to(_PACKAGE).with_suffix("").parts)


def _row(variable: str, constant: Constant, module: str) -> tuple[str, str, str]:
    return code(variable), sentence(constant.docstring), code(module)
