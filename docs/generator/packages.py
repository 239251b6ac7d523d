"""Draw the packages with an arrow per import, and describe each by the first sentence of its docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from docs.generator.markdown import code, document, sentence, table

PACKAGE = Path(__file__).parents[2] / "pipelines" / "backstream"
_INTRODUCTION = """\
The packages in `pipelines/backstream`. An arrow means that a package imports another one. If a way of several
arrows leads to a package, a direct arrow to it is left out of the drawing. `.importlinter` checks that imports
only go down.
[Architecture](../architecture.md) leads through the packages."""


def page() -> str:
    """Return the page."""
    imports = list_imports()
    arrows = [f"  {name} --> {other}" for name, others in _reduce(imports).items() for other in sorted(others)]
    drawing = "\n".join(["```mermaid", "flowchart TD", *arrows, "```"])
    rows = [
        (code(name), _summary(name), ", ".join(code(other) for other in sorted(imports[name])))
        for name in sorted(imports)
    ]
    return document("Packages", _INTRODUCTION, drawing, table(["package", "content", "imports"], rows))


@cache
def list_imports() -> Mapping[str, frozenset[str]]:
    """Return the packages that each package imports; single modules at the top are not counted."""
    names = sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file())
    return {name: frozenset(set(_imported(PACKAGE / name)).intersection(names) - {name}) for name in names}


def _imported(folder: Path) -> Iterator[str]:
    """Yield the package of each import in a folder, also of those in functions."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for parts in (name.split(".") for name in names):
                if parts[0] == PACKAGE.name and len(parts) > 1:
                    yield parts[1]


def _reduce(imports: Mapping[str, frozenset[str]]) -> dict[str, set[str]]:
    """Return the imports without those that also a longer way leads to."""
    reached = {
        name: set().union(*(_reach(imports, other) for other in others)) for name, others in imports.items()
    }
    return {name: set(others) - reached[name] for name, others in imports.items()}


def _reach(imports: Mapping[str, frozenset[str]], name: str) -> set[str]:
    """Return all packages that a package imports, directly or by way of others."""
    found, waiting = set[str](), [*imports[name]]
    while waiting:
        if (other := waiting.pop()) not in found:
            found.add(other)
            waiting += imports[other]
    return found


def _summary(name: str) -> str:
    text = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    return sentence(text.split("\n\n")[0].replace("\n", " "))
