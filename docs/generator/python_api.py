"""Describe the Python API, from the signatures and docstrings of the package."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import backstream
from backstream import api
from backstream.api import results, runs
from docs.generator.docstrings import field_docstrings
from docs.generator.markdown import document, prose, sentence, table

_SECTION = re.compile(r"^(Args|Returns|Raises):\n((?:    .*\n?|\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_HEADERS = {"Args": "parameter", "Raises": "error"}
_EXAMPLE = """\
```python
import backstream

result = backstream.run("flights", "2013-02-01", "2013-03-01", mode="replay")
print(result)

rows = backstream.read("flights", "2013-02-01", "2013-02-02")  # a PyArrow table
print(backstream.run_report(result.run_id, "md"))
```"""


def page() -> str:
    """Return the page."""
    functions = [getattr(backstream, name) for name in backstream.__all__]
    ordered = sorted(functions, key=lambda member: (inspect.isclass(member), _position(member)))
    blocks = [block for member in ordered for block in _member(member)]
    return document("Python API", prose(api.__doc__), _EXAMPLE, *blocks)


def _position(member: Any) -> tuple[int, int]:
    """Return the order of a function in the source of the API; functions of other modules come first."""
    modules = [runs.__name__, results.__name__]
    module = member.__module__
    return modules.index(module) + 1 if module in modules else 0, inspect.getsourcelines(member)[1]


def _member(member: Any) -> Iterator[str]:
    yield f"## `{member.__name__}`"
    if not inspect.isclass(member):
        yield f"```python\n{_signature(member)}\n```"
    yield from _docstring(inspect.getdoc(member) or "")
    if inspect.isclass(member):
        yield table(["attribute", "type", "description"], _attributes(member))


def _signature(function: Any) -> str:
    """Return the signature with a parameter per line."""
    signature = inspect.signature(function)
    lines: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*," not in lines:
            lines.append("*,")
        default = "" if parameter.default is inspect.Parameter.empty else f" = {_literal(parameter.default)}"
        lines.append(f"{parameter.name}: {parameter.annotation}{default},")
    listed = [f"    {line}" for line in lines]
    return "\n".join([f"backstream.{function.__name__}(", *listed, f") -> {signature.return_annotation}"])


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _docstring(text: str) -> Iterator[str]:
    """Yield the description, a table of parameters, and a table of errors."""
    yield prose(_SECTION.sub("", text))
    for title, body in _SECTION.findall(text):
        if title in _HEADERS:
            rows = ((f"`{name}`", sentence(description)) for name, description in _ENTRY.findall(body))
            yield table([_HEADERS[title], "description"], rows)
        else:
            yield f"**{title}** {sentence(body)}"


def _attributes(owner: type) -> Iterator[tuple[str, str, str]]:
    """Yield the fields and the properties of a class."""
    docstrings = field_docstrings(owner)
    for name, kind in inspect.get_annotations(owner).items():
        yield f"`{name}`", f"`{kind}`", sentence(docstrings.get(name))
    for name, member in vars(owner).items():
        if isinstance(member, property):
            kind = inspect.get_annotations(member.fget)["return"] if member.fget else ""
            yield f"`{name}`", f"`{kind}`", sentence(inspect.getdoc(member))
