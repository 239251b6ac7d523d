"""Check a definition against its source without Spark: keys, files, columns, types, and the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backstream.definition import prepared, prepared_columns
from backstream.definition.columns import key_columns, require_columns, value_columns
from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.definition.model import Definition
from backstream.errors import BackstreamError, PlanError
from backstream.eventtime.instants import duration_text
from backstream.installed_spark import require_queries
from backstream.native.preparation.supported import reason_against_settings
from backstream.native.supported import describe_engine, require_engine
from backstream.quality.suites import require_valid_suite
from backstream.runs.home import Home
from backstream.source.columns import resolve_columns
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers
from backstream.source.old_spark import require_spark_reader
from backstream.source.raw_files import RawFile, list_raw_files
from backstream.source.raw_types import load_raw_types, plain_types, require_raw_columns
from backstream.source.reader import UnreadableError
from backstream.source.text_files import require_known_compressions
from backstream.workflow.inputs.prepare import list_parquet_to_prepare
from backstream.workflow.inputs.raw_source import RawSource
from backstream.workflow.plan.shared_home import require_runner


@dataclass(frozen=True, slots=True)
class CheckedDefinition:
    """A definition with the facts that a check found, and its problems.

    `columns` are the columns of the source that the definition uses, and `result` those of its table, with their
    types. Both are empty if they are not known without Spark. `reason` is why the files are prepared.
    """

    definition: Definition
    place: str
    files: tuple[str, ...] = ()
    size_bytes: int = 0
    reason: str | None = None
    columns: Mapping[str, str] | None = None
    result: Mapping[str, str] | None = None
    engine: str = ""
    problems: tuple[BackstreamError, ...] = ()

    @property
    def lines(self) -> Iterator[str]:
        """Yield the facts as lines."""
        definition, source = self.definition, self.definition.source
        size = next((value for key in ("size", "gap") if (value := getattr(definition.window, key, None))), 0)
        yield f"definition  {definition.name}, {definition.window.kind} windows of {duration_text(size)}"
        is_one = len(self.files) == 1
        files = f"{len(self.files):,} file{'' if is_one else 's'}, {self.size_bytes:,} bytes"
        reason = f"; prepared, because {self.reason}" if self.reason else ""
        formats = ", ".join(f"{part.name} {part.format}" for part in source.parts) or source.format
        yield f"source      {formats}, {files}{reason}"
        if self.columns:
            yield f"columns     {_types_text(self.columns)}"
        if self.result:
            yield f"result      {_types_text(self.result)}"
        if self.engine:
            yield f"engine      {self.engine}"


def _types_text(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def check_definition(path: Path, home: Home) -> CheckedDefinition:
    """Return the facts and the problems of a definition; each problem is an error with its own hint.

    Raises:
        SpecError: when the file is not a definition.
    """
    written = load_definition(path)
    checked = CheckedDefinition(written, str(path))
    for step in (_check_suite, _find_files, _check_types):
        try:
            checked = step(checked, home)
        except BackstreamError as error:
            checked = replace(checked, problems=(*checked.problems, error))
            if step is _find_files:
                break
    return checked


def _check_suite(checked: CheckedDefinition, home: Home) -> CheckedDefinition:
    require_valid_suite(checked.definition.quality.suite, home.sound_suites)
    return checked


def _find_files(checked: CheckedDefinition, home: Home) -> CheckedDefinition:
    """Add the files of the source, and the reason if a run prepares them."""
    definition = resolve_raw_paths(checked.definition, home)
    files: list[RawFile] = []
    for single in prepared.list_single_sources(definition):
        with RawSource.open(single, home, checked.place) as source:
            source.require_columns()
            files += source.files
            if source.is_local:
                paths = [file.path for file in source.files]
                require_known_compressions(single.source, paths)
                if reason_against_settings(single, single.source):
                    require_spark_reader(single.source, paths, checked.place)
    reason = prepared.reason_to_prepare(definition)
    if reason is None and list_parquet_to_prepare(definition, checked.place):
        reason = "a time or a column of the files needs it"
    size_bytes = sum(file.size_bytes for file in files)
    return replace(checked, files=tuple(file.path for file in files), size_bytes=size_bytes, reason=reason)


def _check_types(checked: CheckedDefinition, home: Home) -> CheckedDefinition:
    definition = resolve_raw_paths(checked.definition, home)
    if checked.reason is not None:
        return _check_raw_types(checked, definition, home)
    files = list_source_files(definition.source, checked.place)
    shapes = load_footers(files, definition, home).inspect().shapes
    types = resolve_columns(shapes, definition, checked.place).types
    require_runner(definition, definition.backfill.mode, types, files, checked.place)
    return _check_columns(checked, definition, types)


def _check_raw_types(checked: CheckedDefinition, definition: Definition, home: Home) -> CheckedDefinition:
    """Check the columns by the declared types, or those in the first file; Spark knows the others."""
    for single in prepared.list_single_sources(definition):
        if reason := reason_against_settings(single, single.source):
            reason = prepared.reason_to_convert(single) if single.source.format == "parquet" else reason
            require_queries(f"prepare the files of {definition.name}: {reason}", checked.place)
        if code := prepared.transformation(single.source):
            code.load_function(1)  # it must exist; its columns are known after it has run
        if single.source.name and _has_known_types(single):
            paths = [file.path for file in list_raw_files(single.source, checked.place)]
            place = f"{checked.place}, {single.source.name}"
            require_raw_columns(single, _load_first_types(single, paths, place), place)
    if not _has_known_types(definition):
        return checked
    raw = _load_first_types(definition, checked.files, checked.place)
    require_raw_columns(definition, raw, checked.place)
    types = plain_types(definition, raw)
    if types is None:
        return checked
    return _check_columns(checked, prepared.as_prepared(definition, home), types | _PREPARED_TIMES)


def _load_first_types(definition: Definition, paths: Sequence[str], place: str) -> Mapping[str, str]:
    """Return the types of the first file with columns, without a damaged file if the definition skips it.

    Raises:
        PlanError: when a file is damaged, or no file has columns.
    """
    damages = list[UnreadableError]()
    for path in paths:
        try:
            if types := load_raw_types(definition.source, path):
                return types
        except UnreadableError as error:
            damages.append(error)
            if definition.source.corrupt_files == "fail":
                break
    if damages:
        raise PlanError(damages[0].explain(place))
    msg = f"no file has columns, e.g., {paths[0]} ({place}, source.path)\n\nhint: add a file with a record"
    raise PlanError(msg)


def _has_known_types(definition: Definition) -> bool:
    """Return whether the types of the columns are in the definition or in a local file."""
    source = definition.source
    is_remote = prepared.reason_to_copy(source) is not None and not source.columns
    return not (is_remote or source.parts or source.transform)


_PREPARED_TIMES = dict.fromkeys((prepared_columns.EVENT_TIME, prepared_columns.ARRIVAL_TIME), "timestamp")


def _check_columns(
    checked: CheckedDefinition, definition: Definition, types: Mapping[str, str]
) -> CheckedDefinition:
    """Check the columns, the aggregates, and the engine, by the types of the columns."""
    require_columns(definition, types, checked.place)
    require_engine(definition, types, checked.place)
    columns = (*key_columns(definition, types), *value_columns(definition, types))
    result = {column.name: column.type for column in columns}
    own = {name: kind for name, kind in types.items() if name not in prepared_columns.PREPARED_COLUMNS}
    return replace(checked, columns=own, result=result, engine=describe_engine(definition, types))
