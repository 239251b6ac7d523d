"""Find the file of a definition."""

from __future__ import annotations

from pathlib import Path

from backstream.errors import SpecError
from backstream.runs.home import definitions_folder


def find_definition(definition: str) -> Path:
    """Return the file of a definition, given as a path or as a name in the definitions folder.

    Raises:
        SpecError: with the names in the folder, when the definition does not exist.
    """
    path = Path(definition)
    if path.is_file() or path.suffix == ".toml":
        return path
    folder = definitions_folder()
    names = sorted(file.stem for file in folder.glob("*.toml"))
    if definition in names:
        return folder / f"{definition}.toml"
    listed = f"\n  there are: {', '.join(names) or 'none'}"
    msg = f"no definition {definition!r}: neither a file, nor a name in {folder}{listed}"
    raise SpecError(msg)
