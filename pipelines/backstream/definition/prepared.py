"""Decide which sources are prepared, and describe a prepared source, or several, as one that both engines read.

Both engines read Parquet files with plain columns and timestamps. Any other source is prepared: each new file is
read once, and its records are written to Parquet files with columns of that shape (decision 0023).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backstream.definition import prepared_columns
from backstream.definition.model import Definition
from backstream.definition.prepared_columns import ARRIVAL_TIME, EVENT_TIME
from backstream.definition.source_section import SHARED_KEYS, SideInput, Source, StoredRecords
from backstream.runs.home import Home
from backstream.storage.files import load_json, write_json
from backstream.storage.stores import is_in_store
from backstream.user_code import UserCode

_COPIES = "-copies"
_POINTER = "current.json"
_FORMAT_VERSION = 5
"""Format of prepared files; increase it when their columns or the meaning of columns change."""
_POSSIBLE_PATH = re.compile(r"[\w`]\.[^\W\d]|\.`|`[^`]*\.[^`]*`|``")
_NOT_PLAIN = re.compile(r"[.`]")
"""Characters of names that a column of prepared files cannot have."""
_READING_KEYS = (
    *("columns", "event_time_unit", "event_time_pattern", "arrival_time_unit", "arrival_time_pattern"),
    *("time_zone", "where", "derive", "transform", "options", "prepare", "partition_filter"),
)
"""Keys of `[source]` that only the preparation of files understands."""
_KEPT_KEYS = ("deduplicate_within", "deduplicate_keep", "event_time_range", "corrupt_files")
"""Keys of `[source]` that only a run of the prepared files understands."""


def prepared_folder(definition: Definition, home: Home) -> Path:
    """Return the folder of the prepared files of a definition's source, before its paths are rewritten.

    Its name is a digest of everything that the files depend on.
    """
    not_used = {*_KEPT_KEYS, "watermark"}
    source = definition.source.model_dump(mode="json", exclude_defaults=True, exclude=not_used)
    hashes = list_code_hashes(definition)
    marker: list[str | int | None] = [definition.watermark.marker]
    if definition.source.name and definition.watermark.marker:
        marker.append(definition.watermark.delay)  # the files of a union have the watermark of a marked record
    paths = [*sorted(list_paths(definition)), *(["*"] if definition.reads_all_columns else [])]
    sides = {name: side.model_dump(mode="json", exclude_defaults=True) for name, side in definition.inputs.items()}
    watermark = definition.watermark
    job = [[*watermark.job_logs, watermark.source, watermark.topic]] if watermark.job_logs else []
    condition = [["filter", definition.filter.where]] if definition.filter else []
    content = [_FORMAT_VERSION, source, *marker, paths, hashes, *([sides] if sides else []), *job, *condition]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    return home.path / "prepared" / definition.name / digest


def list_code_hashes(definition: Definition) -> list[list[str]]:
    """Return the name and the hash of the code of the user that may change the records of prepared files.

    Any function may be in `where` or `derive`, and prepared files of other code are not used.
    """
    change = transformation(definition.source)
    used_code = [*([change] if change else []), *(definition.user_code if definition.functions else ())]
    return [[str(code), code.source_hash()] for code in used_code]


def copies_folder(definition: Definition, home: Home) -> Path:
    """Return the folder of the local copies of a source's files, if they need no other preparation."""
    folder = prepared_folder(definition, home)
    return folder.with_name(f"{folder.name}{_COPIES}")


def reason_to_copy(source: Source) -> str | None:
    """Return why the files of a source are copied to the home folder; None if they are local files."""
    if source.format == "iceberg":
        return "source.format is iceberg"
    return "source.path is in an object store" if any(map(is_in_store, source.paths)) else None


def reads_appends(definition: Definition) -> bool:
    """Return whether a job of Structured Streaming read the table of the source; else it is a copy of a topic."""
    source = definition.source
    return source.format == "iceberg" and bool(definition.watermark.job_logs) and source.partition is None


def is_copied(definition: Definition, home: Home) -> bool:
    """Return whether local copies of the files are all the preparation that a source needs.

    If executors don't share the home, files in an object store are read there.
    """
    if (
        not home.is_shared
        or reason_to_copy(definition.source) is None
        or reason_to_convert(definition) is not None
    ):
        return False
    return not prepared_folder(definition, home).is_dir()


def as_copied(definition: Definition, home: Home) -> Definition:
    """Return the definition with the local copies of its files as its source."""
    copies = {"path": str(copies_folder(definition, home)), "format": "parquet"}
    return definition.model_copy(update={"source": definition.source.model_copy(update=copies)})


def is_prepared(definition: Definition, home: Home) -> bool:
    """Return whether the source is read from prepared files: its settings need it, or its files needed it."""
    if reason_to_convert(definition) is not None:
        return True
    has_prepared_files = (home.path / "prepared" / definition.name).is_dir()
    return has_prepared_files and prepared_folder(definition, home).is_dir()


def reason_to_prepare(definition: Definition) -> str | None:
    """Return the setting because of which no engine can read the source in place; None if there is none."""
    return reason_to_convert(definition) or reason_to_copy(definition.source)


def reason_to_convert(definition: Definition) -> str | None:
    """Return the setting that an engine cannot read from Parquet files; None if there is none."""
    source = definition.source
    if source.parts or definition.watermark.job_logs:
        return "there are several sources" if source.parts else "each record gets the batch of a job"
    if source.format not in {"parquet", "iceberg"}:
        return f"source.format is {source.format}"
    given = [f"source.{key}" for key in _READING_KEYS if getattr(source, key)]
    given += ["filter.where"] if definition.filter and not reads_prepared_files(source) else []
    if given:
        return f"{given[0]} is set"
    if computed := source.computed_times:
        return f"source.{computed[0]} is computed from columns"
    names, texts = (*_column_names(source), *definition.code_reads), _expressions(definition)
    # The parser takes long to import.
    if not (any(map(_NOT_PLAIN.search, names)) or any(map(_POSSIBLE_PATH.search, texts))):
        return None
    renamed = [path for path in list_paths(definition) if column_of_path(path) != path]
    return f"{renamed[0]} is a field of a column, or its name has a dot or backtick" if renamed else None


def as_prepared(definition: Definition, home: Home) -> Definition:
    """Return the definition with the prepared files as its source."""
    source = definition.source
    folders = tuple(home.location_of(prepared_folder(single, home)) for single in list_single_sources(definition))
    prepared = Source(
        path=folders if source.parts else folders[0],
        event_time=EVENT_TIME,
        arrival_time=ARRIVAL_TIME if source.arrival_time or definition.watermark.job_logs else None,
        partition=source.partition and column_of_path(source.partition),
        sequence=source.sequence and column_of_path(source.sequence),
        key=tuple(map(column_of_path, source.key)),
        deduplicate_on=tuple(map(column_of_path, source.deduplicate_on)),
        parts=source.parts,
    ).model_copy(update={key: getattr(source, key) for key in _KEPT_KEYS})
    marker = definition.watermark.marker
    changes: dict[str, Any] = {"marker": marker and _flatten_paths(marker)}
    if definition.watermark.job_logs:
        changes |= {"batches": _find_batches(definition, home), "emit_interval": 1}
    watermark = definition.watermark.model_copy(update=changes)
    aggregates = {name: _flatten_paths(call) for name, call in definition.aggregates.items()}
    update = {"source": prepared, "watermark": watermark, "aggregates": aggregates, "inputs": {}}
    if definition.filter:
        update["filter"] = definition.filter.model_copy(update={"where": prepared_columns.FILTER})
    for name, section in (("job", definition.job), ("process", definition.process)):
        if section and section.reads is not None:
            update[name] = section.model_copy(update={"reads": tuple(map(column_of_path, section.reads))})
    return definition.model_copy(update=update)


def batches_folder(definition: Definition, home: Home) -> Path:
    """Return the folder of the tables of a job's batches, which all sources of the job share."""
    digest = hashlib.sha256(json.dumps(definition.watermark.job_logs).encode()).hexdigest()[:12]
    return home.path / "prepared" / definition.name / f"job-{digest}"


def _find_batches(definition: Definition, home: Home) -> str:
    """Return the location of the table that the last preparation has used; empty before the first one."""
    folder = batches_folder(definition, home)
    pointer = BatchesPointer.load(folder)
    return home.location_of(folder / pointer.table) if pointer else ""


@dataclass(frozen=True, slots=True)
class BatchesPointer:
    """The name of the current table of a job's batches, and the versions of the logs from which it was made.

    `kept` is that of the folders of kept batches alone, to which a job only adds files.
    """

    table: str
    version: str
    kept: str = ""

    @classmethod
    def load(cls, folder: Path) -> BatchesPointer | None:
        """Return the pointer in the folder of the tables; None before the first one."""
        path = folder / _POINTER
        return cls(**load_json(path, "pointer to the batches of a job")) if path.exists() else None

    def write(self, folder: Path) -> None:
        """Write the pointer by atomic rename."""
        write_json(folder / _POINTER, asdict(self))


def as_source_of(side: SideInput, definition: Definition) -> Definition:
    """Return the definition with a side input as its source, so that its files can be listed and copied."""
    fields = {name: getattr(side, name) for name in StoredRecords.model_fields}
    return definition.model_copy(update={"source": Source(**fields, event_time="null"), "inputs": {}})


def list_single_sources(definition: Definition) -> list[Definition]:
    """Return one definition per source of a union, with the watermarks of that source; a single one as it is."""
    return [
        definition.model_copy(update={"source": part, "watermark": definition.watermark_of(part)})
        for part in definition.source.parts
    ] or [definition]


def transformation(source: Source) -> UserCode | None:
    """Return the function that changes the records of a source; None without one."""
    return UserCode("transformation", source.transform) if source.transform else None


def reads_prepared_files(source: Source) -> bool:
    """Return whether a source was rewritten by `as_prepared`."""
    return source.event_time == EVENT_TIME


def reads_copies(source: Source) -> bool:
    """Return whether a source was rewritten by `as_copied`."""
    return source.paths[0].endswith(_COPIES)


def list_paths(definition: Definition) -> list[str]:
    """Return the columns, or dotted paths into columns, that a result needs besides the times."""
    names = (*_column_names(definition.source), *definition.code_reads)
    return list(dict.fromkeys([*names, *_paths_of(_expressions(definition))]))


def list_read_paths(definition: Definition) -> list[tuple[str, ...]] | None:
    """Return the columns that a definition reads from files, each with the fields behind it; None: all columns."""
    source = definition.source
    if source.transform or definition.reads_all_columns:
        return None
    texts = [source.event_time, source.arrival_time, source.where, definition.condition, *source.derive.values()]
    paths = [*list_paths(definition), *_paths_of(text for text in texts if text)]
    return [tuple(path.split(".")) for path in dict.fromkeys(paths)]


def _column_names(source: Source) -> list[str]:
    return [name for name in (source.partition, source.sequence, *source.key, *source.deduplicate_on) if name]


def _expressions(definition: Definition) -> list[str]:
    return [text for text in (definition.watermark.marker, *definition.aggregates.values()) if text]


def column_of_path(path: str) -> str:
    """Return the name of the column of prepared files for a column or a dotted path, e.g., `payload_user_id`.

    A name with dots and a path into a column look alike. The columns of the files decide which one it is.
    """
    return _NOT_PLAIN.sub("_", path) or "_"


def _flatten_paths(expression: str) -> str:
    """Return a SQL expression with plain columns in place of dotted paths; the rest of its text is unchanged."""
    from backstream.definition.nested_columns import replace_paths

    names = {path: column for path in _paths_of([expression]) if (column := column_of_path(path)) != path}
    return replace_paths(expression, names) if names else expression


def _paths_of(expressions: Iterable[str]) -> Iterator[str]:
    from sqlglot.errors import SqlglotError

    from backstream.definition.nested_columns import paths_of

    for expression in expressions:
        with suppress(SqlglotError):  # another check reports it with its key
            yield from sorted(".".join(path) for path in paths_of(expression))


def with_united_source(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a definition with one source in place of a list of sources; other content as it is."""
    parts = content.get("source")
    if not isinstance(parts, list) or not parts:
        return content
    tables = [part for part in parts if isinstance(part, Mapping)]
    first = tables[0] if tables else {}
    united = {
        "path": [path for part in tables for path in _list_source_paths(part)] or "prepared",
        "event_time": prepared_columns.EVENT_TIME,
        "partition": prepared_columns.PARTITION,
        **{key: first[key] for key in SHARED_KEYS if key in first},
        "parts": parts,
    }
    if all(part.get("arrival_time") for part in tables):
        united["arrival_time"] = prepared_columns.ARRIVAL_TIME
    if any(part.get("sequence") for part in tables):
        united["sequence"] = prepared_columns.SEQUENCE
    return {**content, "source": united}


def _list_source_paths(part: Mapping[str, Any]) -> Iterator[str]:
    path = part.get("path")
    yield from (each for each in (path if isinstance(path, list) else [path]) if isinstance(each, str))
