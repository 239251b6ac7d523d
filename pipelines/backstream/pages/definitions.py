"""Load the definition files for the pages, valid or not; each is read again only when it changes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from backstream.definition.folder import list_definition_files
from backstream.definition.loader import load_definition
from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.pages.store import cached_by_mtime
from backstream.runs.home import definitions_folders


@dataclass(frozen=True)
class DefinitionEntry:
    """A definition file, with its name and its description; it is validated only where a page shows it."""

    name: str
    path: Path
    description: str = ""

    @property
    def definition(self) -> Definition | None:
        """The content; None if it is not valid."""
        return self._outcome[0]

    @property
    def problem(self) -> str:
        """The problem of the file; empty if it is valid."""
        return self._outcome[1]

    @cached_property
    def _outcome(self) -> tuple[Definition | None, str]:
        try:
            return load_definition(self.path), ""
        except SpecError as error:
            return None, str(error)


def find_definition_entry(name: str) -> DefinitionEntry | None:
    """Return the definition file of a dataset; None if there is none."""
    return load_definition_entries().get(name)


def load_definition_entries() -> dict[str, DefinitionEntry]:
    """Return all definition files by the name of their dataset; this reads the folders once."""
    entries = [_load_entry(path) for path in list_definition_files(*definitions_folders())]
    return {entry.name: entry for entry in reversed(entries)}  # The first file of a name counts.


@cached_by_mtime
def _load_entry(path: Path) -> DefinitionEntry:
    """Return a file by its name; a file without a readable name has that of the file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        content = {}
    name, description = (content.get(key, "") for key in ("name", "description"))
    if _is_plain(name) and _is_plain(description):
        return DefinitionEntry(name or path.stem, path, description)
    entry = DefinitionEntry(path.stem, path)
    definition = entry.definition
    return DefinitionEntry(definition.name, path, definition.description) if definition else entry


def _is_plain(value: object) -> bool:
    """Return whether a value is a text without a reference to a variable."""
    return isinstance(value, str) and "{" not in value
