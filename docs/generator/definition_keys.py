"""Describe the keys of a definition, from its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel

from backstream.definition.loader import OVERRIDABLE, json_schema
from backstream.definition.model import Definition
from backstream.definition.values import DURATION_PATTERN
from docs.generator.docstrings import field_docstrings
from docs.generator.markdown import anchor, code, document, prose, sentence, table

Schema = Mapping[str, Any]

_TYPES = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "object": "table",
}
_INTRODUCTION = """\
A definition is a TOML file. An unknown key is an error. A duration is text with units, e.g., `"90m"` or `"1h30m"`.
The units are `ms`, `s`, `m`, `h`, and `d`. An instant is ISO 8601 text, e.g., `"2013-02-01T05:00Z"`.
`backstream definition-schema` prints the same as a JSON schema for editors."""


def page() -> str:
    """Return the page."""
    return _Keys(json.loads(json_schema())).page()


class _Keys:
    """The sections of a definition by their names in the schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._sections: Mapping[str, Schema] = schema["$defs"]
        self._classes = {owner.__name__: owner for owner in _classes(Definition)}
        self._nested = self._find_nested()

    def page(self) -> str:
        """Return the page: the top level, each section in the order of the definition, and nested tables."""
        blocks = ["## Top level", prose(Definition.__doc__), self._table(Definition.__name__, self._schema)]
        for key, value in self._schema["properties"].items():
            for name in _references(value):
                section = self._sections[name]
                path = f"{key}.<name>" if _values_by_name(value) else key
                blocks += self._section(_heading(path, section) if "properties" in section else code(key), name)
        for name, heading in self._nested.items():
            blocks += self._section(heading, name)
        keys = ", ".join(map(code, OVERRIDABLE))
        return document(
            "Definition keys", _INTRODUCTION, *blocks, "## Overrides", f"A run can override these keys: {keys}."
        )

    def _find_nested(self) -> dict[str, str]:
        """Return the headings of the tables within sections: the path, or the name of a shared table."""
        paths: dict[str, list[str]] = {}
        for key, value in self._schema["properties"].items():
            for owner in _references(value):
                for inner, inner_value in self._sections[owner].get("properties", {}).items():
                    for name in _references(inner_value):
                        if "properties" in self._sections[name]:
                            paths.setdefault(name, []).append(f"`[{key}.{inner}]`")
        return {name: found[0] if len(found) == 1 else name for name, found in paths.items()}

    def _section(self, heading: str, name: str) -> Iterator[str]:
        """Yield the heading, the description, the keys, and the values of one section or choice."""
        section = self._sections[name]
        yield f"## {heading}"
        yield prose(section.get("description"))
        if "properties" not in section:
            yield self._values(name)
            return
        yield self._table(name, section)
        for choice in dict.fromkeys(_nested(section)):
            if "enum" in self._sections[choice] and (values := self._values(choice)):
                yield f"Values of `{_key(section, choice)}`:"
                yield values

    def _table(self, name: str, section: Schema) -> str:
        docstrings = self._docstrings(name)
        required = section.get("required", ())
        rows = (
            (
                code(key),
                self._type(value),
                "required" if key in required else _default(value),
                sentence(docstrings.get(key)),
            )
            for key, value in section["properties"].items()
        )
        return table(["key", "type", "default", "description"], rows)

    def _docstrings(self, name: str) -> dict[str, str]:
        """Return the docstrings of the fields of a section, by the names of the keys in TOML."""
        owner, docstrings = self._classes[name], field_docstrings(self._classes[name])
        if not issubclass(owner, BaseModel):
            return docstrings
        return {info.alias or field: docstrings.get(field, "") for field, info in owner.model_fields.items()}

    def _values(self, name: str) -> str:
        """Return the values of a choice with their docstrings; an empty text without any docstring."""
        owner, docstrings = self._classes[name], self._docstrings(name)
        if not issubclass(owner, Enum) or not any(docstrings.values()):
            return ""
        rows = ((code(json.dumps(member.value)), sentence(docstrings.get(member.name))) for member in owner)
        return table(["value", "description"], rows)

    def _type(self, value: Schema) -> str:
        """Return the type of a value for people."""
        if choices := value.get("anyOf") or value.get("oneOf"):
            texts = dict.fromkeys(self._type(choice) for choice in choices if choice.get("type") != "null")
            return " or ".join(texts)
        if "$ref" in value:
            return self._referenced_type(_name(value))
        if "enum" in value or "const" in value:
            return _choice(value.get("enum") or [value["const"]])
        if value.get("type") == "array":
            items = value.get("prefixItems") or [value.get("items", {})]
            count = f"{len(items)} items: " if "prefixItems" in value else ""
            return "list of " + count + " and ".join(dict.fromkeys(self._type(item) for item in items))
        return "duration" if value.get("pattern") == DURATION_PATTERN else _TYPES[value["type"]]

    def _referenced_type(self, name: str) -> str:
        section = self._sections[name]
        if "enum" in section:
            return _choice(section["enum"])
        return f"[table](#{anchor(self._nested[name])})" if name in self._nested else "table"


def _heading(key: str, section: Schema) -> str:
    """Return the heading of a section: its name, and the kind if the name has several."""
    kind = section["properties"].get("kind", {}).get("const")
    return f"`[{key}]`" + (f" with `kind = {json.dumps(kind)}`" if kind else "")


def _key(section: Schema, choice: str) -> str:
    """Return the key of a section whose values are a choice."""
    values: Mapping[str, Schema] = section["properties"]
    return next(key for key, value in values.items() if choice in _references(value))


def _classes(owner: type[BaseModel]) -> Iterator[type]:
    """Yield a model, and all models and enumerations in its fields."""
    yield owner
    for field in owner.model_fields.values():
        for part in _parts(field.annotation):
            if part is owner:
                continue
            if _is_model(part):
                yield from _classes(part)
            elif isinstance(part, type) and issubclass(part, Enum):
                yield part


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and all its arguments."""
    yield annotation
    for argument in get_args(annotation):
        yield from _parts(argument)


def _is_model(owner: Any) -> bool:
    return isinstance(owner, type) and issubclass(owner, BaseModel)


def _references(value: Schema) -> list[str]:
    """Return the names of the sections that a value refers to."""
    choices = [
        choice
        for part in (value, _values_by_name(value))
        for choice in (part, *part.get("anyOf", ()), *part.get("oneOf", ()))
    ]
    return [_name(choice) for choice in choices if "$ref" in choice]


def _values_by_name(value: Schema) -> Schema:
    """Return the schema of the values of a table whose keys are names of the user; empty for other values."""
    named = next(iter(value.get("patternProperties", {}).values()), value.get("additionalProperties"))
    return named if isinstance(named, dict) else {}


def _nested(section: Schema) -> list[str]:
    return [name for value in section.get("properties", {}).values() for name in _references(value)]


def _name(reference: Schema) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _choice(values: list[str]) -> str:
    return ", ".join(code(json.dumps(value)) for value in values)


def _default(value: Schema) -> str:
    default = value.get("default")
    if default is None:
        return ""
    if isinstance(default, dict):
        return "" if "$ref" in value and len(default) > 2 else code(_toml(default))  # noqa: PLR2004 - fits into a cell
    return code(_toml(default))


def _toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    return json.dumps(value)
