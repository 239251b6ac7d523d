"""Load the footers of a source's files from a summary, which is valid while a file is unchanged."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval
from backstream.eventtime.suspect_times import SuspectTimes, TimeCounts
from backstream.eventtime.time_zones import TimeZone
from backstream.runs.file_summaries import load_summary, write_summary
from backstream.runs.home import Home
from backstream.runs.plan import InputFile
from backstream.source.files import DamagedFile, FileInspection, FileTimes, SchemaGroup, SourceFiles, inspect_files

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SourceFooters:
    """The files with a readable footer, and the damaged ones.

    `numbers` has the position in `schemas` of each input's schema. `times` is as in a `FileInspection`.
    """

    inputs: tuple[InputFile, ...]
    damaged: tuple[DamagedFile, ...]
    numbers: tuple[int, ...]
    schemas: tuple[str, ...]
    times: Mapping[str, FileTimes]

    def inspect(self) -> FileInspection:
        """Return the same files with groups by schema."""
        groups: dict[tuple[int, bool], list[str]] = {}
        for number, file in zip(self.numbers, self.inputs, strict=True):
            groups.setdefault((number, file.rows > 0), []).append(file.path)
        decoded = [_decode_schema(text) for text in self.schemas]
        shapes = (SchemaGroup(decoded[number], paths, has_rows) for (number, has_rows), paths in groups.items())
        return FileInspection(self.inputs, self.damaged, tuple(shapes), self.times)


_NO_SUMMARY: Mapping[str, Any] = {"files": {}, "schemas": [], "times": {}}
_NO_FILES = FileInspection((), (), ())
_FIELDS_AFTER_PATH = attrgetter(*(field.name for field in fields(InputFile) if field.name != "path"))


def load_footers(files: SourceFiles, definition: Definition, home: Home) -> SourceFooters:
    """Return the content of the footers of files; a file with unchanged size and times is not opened again."""
    path = home.summary(_summary_name(definition))
    summary = load_summary(path, f"the input files of {definition.name}") or _NO_SUMMARY
    entries: dict[str, list[Any]] = {}
    unknown: dict[str, list[int]] = {}
    for file in files.paths:
        identity, values = _identity(files, file), summary["files"].get(file)
        if values is not None and values[0] == identity:
            entries[file] = values
        else:
            unknown[file] = identity
    new = _NO_FILES
    if unknown:
        new = inspect_files(SourceFiles(tuple(unknown), {}, files.versions), definition.timed_source)
    schemas: list[str] = [*summary["schemas"]]
    numbers = _number_schemas(new.shapes, schemas)
    times = {file: summary["times"][file] for file in entries if file in summary["times"]}
    entries |= {file.path: [unknown[file.path], numbers[file.path], *_values(file)] for file in new.inputs}
    times |= {file: _from_times(counts) for file, counts in new.times.items()}
    if new.inputs or len(entries) < len(summary["files"]):
        write_summary(path, {"schemas": schemas, "files": entries, "times": times})
    in_order = [(file, entries[file]) for file in files.paths if file in entries]
    zone = definition.window.spec().zone
    inputs = tuple(_localize(InputFile(file, *values[2:]), zone) for file, values in in_order)
    numbers_in_order = tuple(values[1] for _, values in in_order)
    counted = {file: _to_times(counts) for file, counts in times.items()}
    return SourceFooters(inputs, new.damaged, numbers_in_order, tuple(schemas), counted)


def _localize(file: InputFile, zone: TimeZone | None) -> InputFile:
    """Return a file with its bounds of event times in the time of the windows."""
    if zone is None or file.min_event_ms is None or file.max_event_ms is None:
        return file
    span = zone.local_span(Interval(file.min_event_ms, file.max_event_ms + 1))
    return replace(file, min_event_ms=span.start_ms, max_event_ms=span.end_ms - 1)


def _summary_name(definition: Definition) -> str:
    """Return the name of the summary; it depends on the time columns, whose bounds it contains."""
    source = definition.timed_source
    columns = json.dumps([source.event_time, source.arrival_time])
    return f"footers-{definition.name}-{hashlib.sha256(columns.encode()).hexdigest()[:12]}"


def _identity(files: SourceFiles, path: str) -> list[int]:
    """Return size, and times of modification and change in microseconds; empty for a missing file.

    An object is never changed, only replaced, so it has no time of change.
    """
    if version := files.versions.get(path):
        return [version.size_bytes, version.modified_ms * 1_000]
    try:
        status = Path(path).stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns // 1_000, status.st_ctime_ns // 1_000]


def _values(file: InputFile) -> list[int | None]:
    """Return the fields of a file after its path."""
    return list(_FIELDS_AFTER_PATH(file))  # `astuple` would copy each value


def _from_times(times: FileTimes) -> dict[str, Any]:
    return {name: asdict(counts) for name, counts in times.items()}


def _to_times(content: Mapping[str, Any]) -> FileTimes:
    return {
        name: TimeCounts(
            {int(year): count for year, count in counts["years"].items()},
            {reason: SuspectTimes(**suspects) for reason, suspects in counts["suspects"].items()},
        )
        for name, counts in content.items()
    }


def _number_schemas(groups: Iterable[SchemaGroup], schemas: list[str]) -> dict[str, int]:
    """Return the number of each file's schema by path, and append new schemas to the list."""
    numbers: dict[str, int] = {}
    for group in groups:
        text = base64.b64encode(group.schema.serialize()).decode()
        if text not in schemas:
            schemas.append(text)
        numbers |= dict.fromkeys(group.paths, schemas.index(text))
    return numbers


def _decode_schema(text: str) -> pa.Schema:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
