"""Find the files of definitions in their folders."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from backstream.errors import SpecError
from backstream.runs.home import Home, definitions_folders
from backstream.runs.settings import PROJECT_FILE

_NO_DEFINITIONS = {PROJECT_FILE, "pyproject.toml"}


def find_definition(definition: str) -> Path:
    """Return the file of a definition: a path, or a name in the folders of definitions, of a dataset or a file.

    A name is that of a dataset before it is that of a file, as in the commands that read the records of a dataset.

    Raises:
        SpecError: with the names in the folders, when the definition does not exist or its name is ambiguous, or
            when it is the name of a recorded dataset and of a file that now defines another dataset.
    """
    path = Path(definition)
    if path.is_file() or path.suffix == ".toml":
        return path
    files = list_definition_files(*definitions_folders())
    of_dataset = [file for file in files if dataset_of_file(file) == definition]
    found = of_dataset or [file for file in files if file.stem == definition]
    if len(found) == 1:
        name = dataset_of_file(found[0])
        if name and name != definition and Home.from_environment().has_dataset(definition):
            fact = f"no file defines the dataset {definition!r} any more: {found[0]} defines {name!r}"
            msg = f"{fact}\n\nhint: give {name}, or the path of the file"
            raise SpecError(msg)
        return found[0]
    if found:
        listed = "".join(f"\n  {file}" for file in found)
        msg = f"{len(found)} files have the name {definition!r}{listed}\n\nhint: give the path of one of them"
        raise SpecError(msg)
    names = sorted({name for file in files for name in (file.stem, dataset_of_file(file)) if name})
    listed = f"\n  there are: {', '.join(names) or 'none'}"
    nearest = get_close_matches(definition, names, n=1)
    hint = f"\n\nhint: did you mean {nearest[0]}?" if nearest else ""
    where = ", ".join(map(str, definitions_folders()))
    msg = f"no definition {definition!r}: neither a file, nor a name in {where}{listed}{hint}"
    raise SpecError(msg)


def dataset_of_file(file: Path) -> str | None:
    """Return the name of the dataset in the file of a definition; None if the file has none or cannot be read."""
    try:
        name = tomllib.loads(file.read_text(encoding="utf-8")).get("name")
    except (OSError, ValueError):  # TOML and UTF-8 errors are of the latter type
        return None
    return name if isinstance(name, str) else None


def list_definition_files(*folders: Path) -> list[Path]:
    """Return the TOML files in folders and their subfolders, without those in hidden folders, sorted."""
    return sorted({file for folder in folders for file in _walk(folder)})


def _walk(folder: Path) -> Iterator[Path]:
    for path, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in names:
            if name.endswith(".toml") and not name.startswith(".") and name not in _NO_DEFINITIONS:
                yield Path(path) / name
