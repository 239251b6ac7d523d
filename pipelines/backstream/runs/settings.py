"""Read the settings of an installation: environment variables, `.env`, and the project file `backstream.toml`.

A project is a folder with a `backstream.toml`. An environment variable overrides `.env`, and `.env` overrides
`backstream.toml`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from backstream.errors import SpecError
from backstream.variables import (
    CACHE_VARIABLE,
    CATALOG_CONNECTION_VARIABLE,
    CATALOG_NAME_VARIABLE,
    CATALOG_VARIABLE,
    CLASS_ARCHIVE_VARIABLE,
    DEFINITIONS_VARIABLE,
    ERROR_FILE_VARIABLE,
    EXPECTATIONS_VARIABLE,
    HEAP_VARIABLE,
    HOME_VARIABLE,
    NAMESPACE_VARIABLE,
    PACKAGE_VARIABLE,
    PROJECT_VARIABLE,
    SHARED_HOME_VARIABLE,
    TASK_VARIABLE,
    TEAM_VARIABLE,
    WAREHOUSE_CONNECTION_VARIABLE,
    WAREHOUSE_VARIABLE,
)

PREFIX = "BACKSTREAM_"
PROJECT_FILE = "backstream.toml"
PATHS = (HOME_VARIABLE, CACHE_VARIABLE, CLASS_ARCHIVE_VARIABLE)
"""Settings that are a folder; in `backstream.toml` it is relative to the project."""
PATH_LISTS = (DEFINITIONS_VARIABLE, EXPECTATIONS_VARIABLE)
"""Settings that are one or several folders."""
SETTINGS = (
    *PATHS,
    *PATH_LISTS,
    CATALOG_VARIABLE,
    CATALOG_NAME_VARIABLE,
    CATALOG_CONNECTION_VARIABLE,
    NAMESPACE_VARIABLE,
    WAREHOUSE_VARIABLE,
    WAREHOUSE_CONNECTION_VARIABLE,
    SHARED_HOME_VARIABLE,
    TEAM_VARIABLE,
    HEAP_VARIABLE,
)
"""All settings. The key in `backstream.toml` is the name without the prefix, in lower case."""
_NO_SETTINGS = (PROJECT_VARIABLE, TASK_VARIABLE, ERROR_FILE_VARIABLE, PACKAGE_VARIABLE)
_PROJECT_FOLDERS = {
    HOME_VARIABLE: ".backstream",
    DEFINITIONS_VARIABLE: "definitions",
    EXPECTATIONS_VARIABLE: "expectations",
}
_PASSWORD = re.compile(r"(://[^:/@]*:).*@")
_SECRET_OPTION = re.compile(r"([?&][^=&]*(?:password|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)
_REFERENCE = re.compile(r"\$(\$?)\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class SettingValue:
    """The value of a setting and the place that it comes from; None without a value."""

    variable: str
    text: str | None
    source: str

    @property
    def key(self) -> str:
        """The key in `backstream.toml`."""
        return _setting_key(self.variable)


def _setting_key(variable: str) -> str:
    """Return the key of a setting in `backstream.toml`."""
    return variable.removeprefix(PREFIX).lower()


def find_project(start: Path | None = None) -> Path | None:
    """Return the folder of the project: the nearest folder with a `backstream.toml`; None if there is none.

    Args:
        start: file or folder in the project; None for `$BACKSTREAM_PROJECT` or the working directory.

    Raises:
        SpecError: when `$BACKSTREAM_PROJECT` has no project file.
    """
    configured = os.environ.get(PROJECT_VARIABLE)
    if start is None and configured:
        if not (Path(configured) / PROJECT_FILE).is_file():
            msg = f"{PROJECT_VARIABLE} must be a folder with a {PROJECT_FILE}, got {configured!r}"
            raise SpecError(msg)
        return Path(configured).resolve()
    folder = (start or Path()).resolve()
    return next((each for each in (folder, *folder.parents) if (each / PROJECT_FILE).is_file()), None)


def project_environment(start: Path | None = None) -> dict[str, str]:
    """Return the variables of the process, and those of the project that the process does not have.

    Raises:
        SpecError: when the project file is not valid.
    """
    return _merge(_list_places(find_project(start)))


def provide_settings(start: Path | None = None) -> list[SettingValue]:
    """Set the variables of the project that this process does not have; its jobs inherit them.

    Returns:
        All settings in the order of `SETTINGS`, each with its source.

    Raises:
        SpecError: when the project file is not valid.
    """
    places = _list_places(find_project(start))
    os.environ.update(_merge(places))
    return [_first_value(variable, places) for variable in SETTINGS]


def misspelt_variables() -> Iterator[str]:
    """Yield a sentence per variable of this process whose name resembles that of a setting.

    Other variables with the prefix are not checked: a definition can refer to them.
    """
    known = {_setting_key(variable): variable for variable in (*SETTINGS, PROJECT_VARIABLE)}
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in (*known.values(), *_NO_SETTINGS):
            for nearest in get_close_matches(_setting_key(name), known, n=1):
                yield f"{name} is not a setting and has no effect; did you mean {known[nearest]}?"


def mask_secrets(text: str) -> str:
    """Return a value with `***` in place of passwords and keys in addresses."""
    without_password = _PASSWORD.sub(r"\1***@", text)
    return _SECRET_OPTION.sub(r"\1***", without_password)


def fill_references(text: str, variables: Mapping[str, str], where: str) -> str:
    """Return a text with each `${NAME}` replaced by a variable; `$${NAME}` becomes `${NAME}`.

    Raises:
        SpecError: when a variable is not set.
    """

    def replace(match: re.Match[str]) -> str:
        is_escaped, name = match.groups()
        if is_escaped:
            return match[0][1:]
        if name not in variables:
            msg = f"variable {name} is not set, got {text!r} ({where})"
            raise SpecError(msg)
        return variables[name]

    return _REFERENCE.sub(replace, text)


def _list_places(project: Path | None) -> list[tuple[str, dict[str, str]]]:
    """Return the places of settings with their variables, the one that overrides the others first."""
    places = [("environment", _without_empty(os.environ))]
    if project is None:
        return places
    dotenv = project / ".env"
    if dotenv.is_file():
        places.append((str(dotenv), _without_empty(_dotenv_variables(dotenv))))
    file = project / PROJECT_FILE
    defaults = {variable: str(project / name) for variable, name in _PROJECT_FOLDERS.items()}
    return [*places, (str(file), _file_variables(file, _merge(places))), (f"default of {project}", defaults)]


def _without_empty(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables without empty settings, which count as not set; an empty class archive has a meaning."""
    can_be_empty = {CLASS_ARCHIVE_VARIABLE}
    return {name: text for name, text in variables.items() if text or name not in {*SETTINGS} - can_be_empty}


def _merge(places: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    return {name: text for _, values in reversed(places) for name, text in values.items()}


def _first_value(variable: str, places: Sequence[tuple[str, Mapping[str, str]]]) -> SettingValue:
    for source, values in places:
        if variable in values:
            return SettingValue(variable, values[variable], source)
    return SettingValue(variable, None, "default")


def _dotenv_variables(file: Path) -> dict[str, str]:
    """Return the variables of a file with lines `NAME=value`; a line without `=` has none."""
    from dotenv import dotenv_values  # most projects have no such file

    return {name: text for name, text in dotenv_values(file, interpolate=False).items() if text is not None}


def _file_variables(file: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a project file.

    Raises:
        SpecError: when the file is not TOML, or a key or value is invalid.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{PROJECT_FILE} is not TOML: {error} ({file})"
        raise SpecError(msg) from error
    known = {_setting_key(variable): variable for variable in SETTINGS}
    found = {}
    for key, value in content.items():
        if key not in known:
            nearest = get_close_matches(key, known, n=1)
            hint = f"\n\nhint: did you mean {nearest[0]}?" if nearest else ""
            msg = f"{key} is not a setting, got {value!r} ({file})\n  there are: {', '.join(sorted(known))}{hint}"
            raise SpecError(msg)
        found[known[key]] = _setting_text(known[key], value, file, variables)
    return found


def _setting_text(variable: str, value: Any, file: Path, variables: Mapping[str, str]) -> str:
    """Return a value of the project file as the text of its variable."""
    key, is_list = _setting_key(variable), variable in PATH_LISTS
    texts = value if is_list and isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        msg = f"{key} must be a text{' or a list of texts' if is_list else ''}, got {value!r} ({file})"
        raise SpecError(msg)
    filled = [fill_references(text, variables, f"{file}, {key}") for text in texts]
    is_folder = variable in PATHS and filled != [""] and "://" not in filled[0]
    if is_list or is_folder:
        filled = [str(file.parent / text) for text in filled]
    elif variable == WAREHOUSE_VARIABLE and "://" not in filled[0]:
        filled = [str(file.parent / filled[0])]
    return os.pathsep.join(filled)
