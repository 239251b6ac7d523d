"""Load the definition files for the pages, valid or not; each is parsed again only when it changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backstream.definition.folder import list_definition_files
from backstream.definition.loader import load_definition
from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.pages.store import cached_by_mtime
from backstream.runs.home import definitions_folders


@dataclass(frozen=True, slots=True)
class DefinitionEntry:
    """A definition file: its content, or its problem."""

    name: str
    definition: Definition | None
    problem: str
    path: Path


def find_definition_entry(name: str) -> DefinitionEntry | None:
    """Return the definition file of a dataset; None if there is none."""
    return load_definition_entries().get(name)


def load_definition_entries() -> dict[str, DefinitionEntry]:
    """Return all definition files by the name of their dataset; this reads the folders once."""
    entries = [_load_entry(path) for path in list_definition_files(*definitions_folders())]
    return {entry.name: entry for entry in reversed(entries)}  # The first file of a name counts.


@cached_by_mtime
def _load_entry(path: Path) -> DefinitionEntry:
    try:
        definition = load_definition(path)
    except SpecError as error:
        return DefinitionEntry(path.stem, None, str(error), path)
    return DefinitionEntry(definition.name, definition, "", path)
