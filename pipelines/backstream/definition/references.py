"""Replace `${NAME}` in the values of a definition by variables of the environment or the project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backstream.runs.settings import fill_references

_PATH = "path"
"""The key whose variables a run replaces, because `${BACKSTREAM_HOME}` is the home of the run."""


def fill_values(content: Mapping[str, Any], variables: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return the content of a definition with each `${NAME}` in a text replaced, except in paths.

    Args:
        content: content of the TOML file.
        variables: values by name.
        where: location for messages.

    Raises:
        SpecError: with the key and the value, when a variable is not set.
    """
    return {key: _fill(value, key, variables, where) for key, value in content.items()}


def _fill(value: Any, key: str, variables: Mapping[str, str], where: str) -> Any:
    if isinstance(value, str):
        return fill_references(value, variables, f"{where}, {key}")
    if isinstance(value, list):
        return [_fill(item, key, variables, where) for item in value]
    if isinstance(value, Mapping):
        return {
            name: item if name == _PATH else _fill(item, f"{key}.{name}", variables, where)
            for name, item in value.items()
        }
    return value
