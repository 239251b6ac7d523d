"""The footers of a source's files, each read once: what they say is kept as long as the file is the same."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backstream.definition.model import Definition
from backstream.runs.file_summaries import load_summary, write_summary
from backstream.runs.home import Home
from backstream.runs.plan import InputFile
from backstream.source.files import DamagedFile, FileInspection, SchemaGroup, SourceFiles, inspect_files

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SourceFooters:
    """The files with a footer that can be read, and those without; `schemas` are numbered, one per file."""

    inputs: tuple[InputFile, ...]
    damaged: tuple[DamagedFile, ...]
    numbers: tuple[int, ...]
    schemas: tuple[str, ...]

    def inspect(self) -> FileInspection:
        """The same with the columns of all files."""
        shapes: dict[tuple[int, bool], list[str]] = {}
        for number, file in zip(self.numbers, self.inputs, strict=True):
            shapes.setdefault((number, file.rows > 0), []).append(file.path)
        decoded = [_decoded(text) for text in self.schemas]
        told = (SchemaGroup(decoded[number], paths, has_rows) for (number, has_rows), paths in shapes.items())
        return FileInspection(self.inputs, self.damaged, tuple(told))


def load_footers(found: SourceFiles, definition: Definition, home: Home) -> SourceFooters:
    """Return what the footers of files say; one that has the size and the times it had is not opened again."""
    place = home.summary(_name(definition))
    summary = load_summary(place, f"the input files of {definition.name}") or {"files": {}, "schemas": []}
    known: dict[str, list[Any]] = {}
    unknown: dict[str, list[int]] = {}
    for path in found.paths:
        identity, values = _identity(path), summary["files"].get(str(path))
        if values is not None and values[0] == identity:
            known[str(path)] = values
        else:
            unknown[str(path)] = identity
    new = (
        inspect_files(SourceFiles(tuple(map(Path, unknown)), {}), definition.timed_source) if unknown else _NOTHING
    )
    schemas: list[str] = summary["schemas"]
    of_new = _numbered(new.shapes, schemas)
    known |= {file.path: [unknown[file.path], of_new[file.path], *_values(file)] for file in new.inputs}
    if new.inputs or len(known) < len(summary["files"]):
        write_summary(place, {"schemas": schemas, "files": known})
    told = [(path, known[path]) for path in map(str, found.paths) if path in known]
    inputs = tuple(InputFile(path, *values[2:]) for path, values in told)
    return SourceFooters(inputs, new.damaged, tuple(values[1] for _, values in told), tuple(schemas))


_NOTHING = FileInspection((), (), ())


def _name(definition: Definition) -> str:
    """Of the summary: other columns of time have other bounds."""
    source = definition.timed_source
    columns = json.dumps([source.event_time, source.arrival_time])
    return f"footers-{definition.name}-{hashlib.sha256(columns.encode()).hexdigest()[:12]}"


def _identity(path: Path) -> list[int]:
    """Size and times of change, in microseconds; of a file that is gone, those of no file."""
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns // 1_000, found.st_ctime_ns // 1_000]


def _values(file: InputFile) -> list[int | None]:
    """The fields of a file behind its path."""
    return list(astuple(file)[1:])


def _numbered(shapes: Iterable[SchemaGroup], schemas: list[str]) -> dict[str, int]:
    """The number of each file's schema, by path; new ones are added to the list."""
    found: dict[str, int] = {}
    for shape in shapes:
        text = base64.b64encode(shape.schema.serialize()).decode()
        if text not in schemas:
            schemas.append(text)
        found |= dict.fromkeys(shape.paths, schemas.index(text))
    return found


def _decoded(text: str) -> pa.Schema:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
