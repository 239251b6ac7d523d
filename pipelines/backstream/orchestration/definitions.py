"""Load the definitions of DAG files: each content is parsed once, and problems are collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from itertools import islice
from pathlib import Path

from backstream.definition.folder import list_definition_files
from backstream.definition.loader import load_definition
from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.orchestration.run_range import data_intervals, load_timetable
from backstream.runs.dag_names import load_team, qualified_name
from backstream.runs.home import definitions_folders
from backstream.runs.settings import project_environment

_TICKS = 3
_SEARCH_MS = 9 * 366 * DAY_MS
"""The longest time between two ticks is that of February 29, around a year such as 2100."""


@dataclass(frozen=True, slots=True)
class LoadedDefinitions:
    """The valid definitions by file, and the problems of the others."""

    definitions: Mapping[Path, Definition]
    problems: tuple[str, ...]


def find_folders(folder: Path | str | None = None, package: str | None = None) -> tuple[Path, ...]:
    """Return the folders of definitions: a folder, a Python package, or those of the settings.

    Raises:
        SpecError: when the given folder or package does not exist, or both are given.
    """
    if folder is not None and package is not None:
        msg = f"definitions come from a folder or a package, got both: {folder} and {package}"
        raise SpecError(msg)
    if package is not None:
        return (_package_folder(package),)
    return definitions_folders() if folder is None else require_folders(Path(folder))


def require_folders(*folders: Path) -> tuple[Path, ...]:
    """Return the folders after checking that each exists.

    Raises:
        SpecError: with the first one that does not.
    """
    for folder in folders:
        if not folder.is_dir():
            msg = f"no folder of definitions at {folder}"
            raise SpecError(msg)
    return folders


def load_definitions(folders: tuple[Path, ...]) -> LoadedDefinitions:
    """Return the definitions in folders and their subfolders.

    A name that several definitions have is a problem, and none of them is returned: a stray copy replaces nothing.
    """
    found: dict[str, dict[Path, Definition]] = {}  # by the name with the team
    problems = []
    for path in list_definition_files(*folders):
        definition, problem = _load_once(path)
        if definition is None:
            problems.append(problem)
        else:
            found.setdefault(qualified_name(definition.name, find_team(path)), {})[path] = definition
    for name, same in found.items():
        if len(same) > 1:
            listed = "".join(f"\n  {path}" for path in same)
            problems.append(
                f"name must be unique, got {name!r} in {len(same)} files, so none becomes a DAG{listed}"
                "\n\nhint: rename or remove all but one"
            )
    valid = {path: definition for same in found.values() if len(same) == 1 for path, definition in same.items()}
    return LoadedDefinitions(valid, tuple(problems))


def find_team(path: Path) -> str:
    """Return the team of the project of a definition; empty if it has none.

    Raises:
        SpecError: when the project file is not valid.
    """
    return _find_team(path.parent)


@lru_cache(maxsize=4096)
def _find_team(folder: Path) -> str:
    return load_team(project_environment(folder))


def _load_once(path: Path) -> tuple[Definition | None, str]:
    """Return the definition in a file, or its problem; the DAG files of a process share the result."""
    try:
        content = path.read_bytes()
        variables = project_environment(path.parent)
        load_team(variables)
    except OSError as error:
        return None, f"cannot read the definition at {path}: {error.strerror}"
    except SpecError as error:
        return None, str(error)
    return _parse(path, sha256(content).hexdigest(), tuple(sorted(variables.items())))


@lru_cache(maxsize=4096)
def _parse(path: Path, _digest: str, _variables: tuple[tuple[str, str], ...]) -> tuple[Definition | None, str]:
    """Parse a file; the other arguments are the key of the cache."""
    try:
        definition = load_definition(path)
        require_timetable(definition, path)
    except SpecError as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001 - no error may hide the DAGs of other definitions
        return None, f"{type(error).__name__}: {error} ({path})"
    return definition, ""


def require_timetable(definition: Definition, path: Path) -> None:
    """Check that Airflow understands the schedule of a definition, and that its intervals are whole days in UTC.

    Raises:
        SpecError: when the schedule is not a cron expression, or a run would begin within a day.
    """
    schedule = definition.backfill.schedule
    try:
        load_timetable(schedule)
    except Exception as error:
        msg = f"backfill.schedule must be a cron expression such as @daily, got {schedule!r} ({path})"
        raise SpecError(msg) from error
    # The hours and minutes of a cron expression are the same on each of its days, so its first ticks show them.
    since_ms = definition.source.event_time_range[0]
    ticks = islice(data_intervals(schedule, Interval(since_ms, since_ms + _SEARCH_MS)), _TICKS)
    if broken := next((tick for tick in ticks if tick.start_ms % DAY_MS or tick.end_ms % DAY_MS), None):
        msg = (
            f"backfill.schedule must have intervals of whole days in UTC, got {schedule!r} with {broken} ({path})"
            "\n\nhint: use @daily, @weekly, @monthly, or a cron expression that begins with 0 0"
        )
        raise SpecError(msg)


def _package_folder(package: str) -> Path:
    try:
        return Path(str(files(package)))
    except (ModuleNotFoundError, TypeError) as error:
        msg = f"no package {package!r} with definitions: {error}"
        raise SpecError(msg) from None
