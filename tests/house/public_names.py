"""The public names of the package, and the places that use them, read from the syntax trees."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = "backstream"
_PASSIVE = frozenset(
    ["abstractmethod", "cache", "contextmanager", "dataclass", "final", "lru_cache", "overload", "total_ordering"]
)
"""Decorators that call nothing later. Each other one, such as `app.command()`, registers the function."""
_RAISED = re.compile(r"^ +(\w+): (?:if|when) ", re.MULTILINE)
"""An error in the docstring of a function."""
_ADDRESS = re.compile(rf"\b({ROOT}(?:\.\w+)+)[.:](\w+)\b")

Name = tuple[str, str]
"""A module and a name in it."""


@dataclass(slots=True)
class Module:
    """A module of the package.

    `public` are the nodes of its public names. `loaded` are the names that its code reads.
    """

    name: str
    public: dict[str, ast.stmt] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)

    @classmethod
    def from_source(cls, name: str, source: str) -> Module:
        """Return the module of a source text."""
        tree, module = ast.parse(source), cls(name)
        for node in tree.body:
            module.public.update({each: node for each in _defined(node) if each[0] != "_"})
        module.loaded = {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        return module

    def in_signature(self, name: str) -> set[str]:
        """Return the public names of this module that the signature of one of them contains."""
        nodes = [node for part in _signature(self.public[name]) for node in ast.walk(part)]
        words = {node.id for node in nodes if isinstance(node, ast.Name)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.update(_RAISED.findall(node.value))
        return words & self.public.keys() - {name}


def _defined(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign():
            yield from (
                each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)
            )
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _signature(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a definition that callers see: annotations, bases, errors, and the value of an alias."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.args
            yield from (each for each in (node.returns, node.body[0]) if each)
        case ast.ClassDef():
            yield from node.bases
            for inner in node.body:
                if not (isinstance(inner, ast.FunctionDef) and inner.name[0] == "_" and inner.name != "__init__"):
                    yield from _signature(inner)
        case ast.AnnAssign(annotation=annotation, value=value):
            yield annotation
            if value:
                yield value
        case ast.Assign(value=value):
            yield value


def is_registered(node: ast.stmt) -> bool:
    """Return whether a decorator passes a function to a program that calls it."""
    for decorator in getattr(node, "decorator_list", ()):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) not in _PASSIVE:
            return True
    return False


def find_uses(source: str) -> set[Name]:
    """Return the names of other modules that a source uses: imported, as attributes of a module, or in a text."""
    found, aliases = set[Name](), defaultdict[str, set[str]](set)
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str() as module, names=names):
                for each in names:
                    found.add((module, each.name))
                    aliases[each.asname or each.name].add(f"{module}.{each.name}")
            case ast.Assign(
                targets=[ast.Name(id=alias)], value=ast.Call(args=[ast.Constant(value=str() as text)])
            ):
                aliases[alias].add(text)  # the result of `import_module`
            case ast.Constant(value=str() as text):
                found |= find_addresses(text)
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=alias), attr=name):
                found.update((module, name) for module in aliases[alias])
            case ast.Attribute(value=ast.Call(args=[ast.Constant(value=str() as module)]), attr=name):
                found.add((module, name))
            case ast.Call(args=[ast.Name(id=alias), ast.Constant(value=str() as name), *_]):
                found.update((module, name) for module in aliases[alias])  # `monkeypatch.setattr`
    return found


def find_addresses(text: str) -> set[Name]:
    """Return the names that a text has as `module:name` or `module.name`."""
    return set(_ADDRESS.findall(text))


def find_needless(modules: Mapping[str, Module], used: set[Name], tested: set[Name]) -> Iterator[str]:
    """Yield a sentence for each public name that should be private, or should not exist.

    A name is public for a caller in another module, for a program that registers it, or for the signature of
    another public name. A test may also call a function that its own module uses.

    Args:
        modules: the modules of the package.
        used: the names that programs use.
        tested: the names that tests use.
    """
    for module in modules.values():
        public = {
            name
            for name, node in module.public.items()
            if (module.name, name) in used
            or is_registered(node)
            or ((module.name, name) in tested and name in module.loaded)
        }
        waiting = list(public)
        while waiting:
            new = module.in_signature(waiting.pop()) - public
            public |= new
            waiting += new
        for name in sorted(module.public.keys() - public):
            place = f"{module.name}.{name}"
            if name in module.loaded:
                yield f"{place} is used only in its module: call it _{name}"
            elif (module.name, name) in tested:
                yield f"{place} is used only by tests: delete it"
            else:
                yield f"{place} is not used: delete it"


def load_modules(package: Path) -> dict[str, Module]:
    """Return the modules of a package by name."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        modules[name] = Module.from_source(name, path.read_text(encoding="utf-8"))
    return modules
