"""Find the columns of a source that each column of the result is computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from backstream.definition.model import Definition
from backstream.definition.nested_columns import paths_of
from backstream.definition.prepared import column_of_path


class Step(StrEnum):
    """The way from a column of the source to the result."""

    IDENTITY = "identity"
    """The result has the value itself."""
    TRANSFORMATION = "transformation"
    """The result has a value that is computed from it, record by record."""
    AGGREGATION = "aggregation"
    """The result has an aggregate over it."""
    GROUP_BY = "group_by"
    """The value decides which row of the result a record belongs to."""
    WINDOW = "window"
    """The value decides which window a record belongs to."""
    FILTER = "filter"
    """The value decides whether a record or a row counts."""

    @property
    def is_direct(self) -> bool:
        """Return whether values go into a column of the result, instead of deciding which records count."""
        return self in (Step.IDENTITY, Step.TRANSFORMATION, Step.AGGREGATION)


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A column of the source, or a dotted path into one, and what happens to it; `text` is SQL or a name."""

    column: str
    step: Step
    text: str = ""


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """The origins of each column of the result, and those that decide about whole rows."""

    columns: Mapping[str, tuple[Origin, ...]]
    rows: tuple[Origin, ...]


def find_origins(definition: Definition, *, is_replay: bool, known: Iterable[str] = ()) -> ColumnLineage | None:
    """Return the origins of the columns of a result; None if a function of the user changes the records first.

    Args:
        definition: definition with one source.
        is_replay: whether arrival times decide which records are late.
        known: the columns of the source, for user code that reads them all.
    """
    source = definition.source
    if source.transform:
        return None
    paths = _SourcePaths(source.derive)
    event_time = paths.of(definition.timed_source.event_time or "null")
    keys = [paths.of_all([name]) for name in source.key]
    window = definition.window.kind
    columns = {
        name: tuple(Origin(path, Step.TRANSFORMATION, window) for path in event_time)
        for name in ("window_start", "window_end")
    }
    for name, found in zip(source.key, keys, strict=True):
        step = Step.IDENTITY if found == (name,) else Step.TRANSFORMATION
        columns[column_of_path(name)] = tuple(Origin(path, step) for path in found)
    columns |= _value_origins(definition, paths, known)
    for name, text in definition.derive_after.items():
        columns[name] = _result_origins(text, columns, Step.TRANSFORMATION)
    if definition.top and definition.top.rank:
        columns[definition.top.rank] = _result_origins(definition.top.over(), columns, Step.TRANSFORMATION)
    rows = [
        *(Origin(path, Step.GROUP_BY) for found in keys for path in found),
        *(Origin(path, Step.WINDOW, window) for path in event_time),
        *(
            Origin(path, Step.FILTER, "deduplicate_on")
            for name in source.deduplicate_on
            for path in paths.of(name)
        ),
        *(
            Origin(path, Step.FILTER, text)
            for text in (source.where, definition.condition)
            if text
            for path in paths.of(text)
        ),
    ]
    if is_replay and source.arrival_time:
        rows += [Origin(path, Step.FILTER, "arrival_time") for path in paths.of(source.arrival_time)]
    if definition.having:
        rows += _result_origins(definition.having.condition, columns, Step.FILTER)
    if definition.top:
        rows += _result_origins(definition.top.over(), columns, Step.FILTER)
    return ColumnLineage(columns, tuple(dict.fromkeys(rows)))


class _SourcePaths:
    """The columns of the files behind SQL over the columns of a source, which may be derived ones."""

    def __init__(self, derive: Mapping[str, str]) -> None:
        self._derived: dict[str, tuple[str, ...]] = {}
        for name, text in derive.items():
            self._derived[name] = self.of(text)

    def of(self, text: str) -> tuple[str, ...]:
        """Return the paths in an expression, sorted."""
        return self._resolve(paths_of(text))

    def of_all(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the paths behind columns or dotted paths, sorted."""
        return self._resolve(tuple(name.split(".")) for name in names)

    def _resolve(self, paths: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        found: set[str] = set()
        for path in paths:
            found.update(self._derived.get(path[0], (".".join(path),)))
        return tuple(sorted(found))


def _value_origins(
    definition: Definition, paths: _SourcePaths, known: Iterable[str]
) -> dict[str, tuple[Origin, ...]]:
    """Return the origins of the aggregates; each column of user code can be computed from all that it reads."""
    if definition.code_columns is None:
        return {
            name: tuple(Origin(path, Step.AGGREGATION, text) for path in paths.of(text))
            for name, text in definition.aggregates.items()
        }
    section = (
        definition.job.function if definition.job else definition.process and definition.process.process_class
    )
    reads = sorted(known) if definition.reads_all_columns else definition.code_reads
    origins = [
        Origin(path, Step.TRANSFORMATION, section or "") for name in reads for path in paths.of(f"`{name}`")
    ]
    return dict.fromkeys(definition.code_columns, tuple(dict.fromkeys(origins)))


def _result_origins(text: str, columns: Mapping[str, tuple[Origin, ...]], step: Step) -> tuple[Origin, ...]:
    """Return the origins of SQL over the columns of the result."""
    named = sorted({path[0] for path in paths_of(text)})
    found = (origin for name in named for origin in columns.get(name, ()))
    return tuple(
        dict.fromkeys(
            replace(origin, step=step if step is Step.FILTER else _later(origin.step, step), text=text)
            for origin in found
        )
    )


def _later(first: Step, then: Step) -> Step:
    """Return the step of two in a row: an aggregate stays one."""
    return first if first is Step.AGGREGATION else then
