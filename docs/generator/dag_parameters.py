"""Describe the parameters of the DAGs, from their forms."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator, Mapping
from tempfile import TemporaryDirectory
from typing import Any

from backstream.definition.loader import load_definition
from backstream.runs.home import bundled_folder
from docs.generator.markdown import code, document, prose, sentence, table

_SUFFIX = "_params"
_HIDDEN = ("title", "description", "description_md", "section", "type", "allOf", "not")


def page() -> str:
    """Return the page, for the first definition in the folder of definitions."""
    definition = load_definition(min(bundled_folder("definitions").glob("*.toml")))
    introduction = (
        "The form of a DAG depends on the definition. This page shows the forms of the definition "
        f"`{definition.name}`; defaults and limits of other definitions differ."
    )
    with TemporaryDirectory() as folder:
        os.environ.setdefault("AIRFLOW_HOME", folder)  # Airflow writes its settings when it is imported
        from backstream.orchestration import form

        blocks: list[str] = []
        for name, function in inspect.getmembers(form, inspect.isfunction):
            is_public = not name.startswith("_")
            if is_public and name.endswith(_SUFFIX) and "Param]" in str(function.__annotations__.get("return")):
                arguments = [definition] * len(inspect.signature(function).parameters)
                blocks += _form(name.removesuffix(_SUFFIX), inspect.getdoc(function), function(*arguments))
    return document("DAG parameters", introduction, *blocks)


def _form(dag: str, text: str | None, fields: Mapping[str, Any]) -> Iterator[str]:
    yield f"## `{dag}_<name>`"
    yield prose(text)
    yield table(["parameter", "label", "type", "default", "description"], (_row(*item) for item in fields.items()))


def _row(name: str, parameter: Any) -> tuple[str, str, str, str, str]:
    schema = parameter.schema
    kinds = schema.get("type", "")
    kind = "" if "enum" in schema else " or ".join(part for part in _listed(kinds) if part != "null")
    limits = ", ".join(_limit(key, value) for key, value in schema.items() if key not in _HIDDEN)
    return (
        code(name),
        str(schema.get("title", "")),
        ", ".join(part for part in (kind, limits) if part),
        _default(parameter),
        sentence(schema.get("description_md") or schema.get("description") or parameter.description),
    )


def _limit(key: str, value: object) -> str:
    if isinstance(value, list):
        return ", ".join(code(json.dumps(item)) for item in value)
    return f"{key} {code(value)}"


def _default(parameter: Any) -> str:
    """Return the default; a parameter without one is required."""
    value = parameter.value
    if type(value).__name__ == "ArgNotSet":
        return "required"
    return "" if value is None or value == "" else code(json.dumps(value))


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
