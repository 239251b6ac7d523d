"""Describe the commands of the CLI, from the Typer application."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.main import get_command

from backstream.cli import app
from docs.generator.markdown import code, document, prose, sentence, table

_TYPES = {str: "text", int: "integer", float: "number", bool: "flag", Path: "file"}
_ARGUMENT = "argument"


def page() -> str:
    """Return the page."""
    name = app.info.name or "backstream"
    return document("Commands", prose(_text(app.info.help)), *_group(app, get_command(app), name))


def _group(group: typer.Typer, built: Any, name: str) -> Iterator[str]:
    """Yield the commands of a group in the order of their help, then those of its groups."""
    for info in group.registered_commands:
        if info.callback:
            command = info.name or info.callback.__name__.replace("_", "-")
            yield from _command(f"{name} {command}", info.callback, built.commands[command])
    for subgroup in group.registered_groups:
        if subgroup.typer_instance and subgroup.name:
            inner = f"{name} {subgroup.name}"
            yield f"## {code(inner)}"
            yield prose(_text(subgroup.typer_instance.info.help))
            yield from _group(subgroup.typer_instance, built.commands[subgroup.name], inner)


def _command(name: str, callback: Callable[..., Any], built: Any) -> Iterator[str]:
    yield f"## {code(name)}"
    yield prose(callback.__doc__)
    rows = list(_parameters(callback, built))
    yield table(["argument or option", "type", "default", "description"], rows)


def _parameters(callback: Callable[..., Any], built: Any) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row per argument and option of a command."""
    types, parameters = get_type_hints(callback), inspect.signature(callback).parameters
    for parameter in built.params:
        if parameter.name not in parameters:
            continue
        kind = types[parameter.name]
        names = [parameter.metavar or parameter.name.upper()]
        if parameter.param_type_name != _ARGUMENT:
            names = [*parameter.opts, *parameter.secondary_opts]
        default = parameters[parameter.name].default
        yield ", ".join(map(code, names)), _type(kind), _default(default), sentence(parameter.help)


def _type(kind: Any) -> str:
    """Return a type for people; choices are their values."""
    if arguments := [argument for argument in get_args(kind) if argument is not NoneType]:
        text = _type(arguments[0])
        return f"list of {text}" if get_origin(kind) is list else text
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(code(member.value) for member in kind)
    return _TYPES[kind]


def _default(default: object) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    if default is None or default is False or default == "":
        return ""
    return code(default.value if isinstance(default, Enum) else default)


def _text(text: object) -> str:
    return text if isinstance(text, str) else ""
