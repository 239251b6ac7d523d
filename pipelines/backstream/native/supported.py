"""Decide by a whitelist which definitions the native engine can compute; Spark computes all others.

Each entry of the whitelist has the same value as Spark's own aggregate. Integers and decimals are equal to the
last digit. A sum of doubles depends on the order of addition, in Spark as in DuckDB, so that its last digits may
differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from backstream.definition.model import Definition
from backstream.definition.prepared_columns import FILE
from backstream.errors import SpecError
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.windows import Session
from backstream.native.task import DECIMAL, FLOATING, GROUPED, INTEGERS, TIMES, Aggregate, ReadSpec

_STRATEGIES_BETWEEN_TICKS = (StrategyKind.PUNCTUATED, StrategyKind.CUSTOM)
_MAX_TIME_MS = MAX_MS // 4
"""Above it a merge of sessions may overflow, as in Flink; only Spark's implementation handles that."""
_FUNCTIONS: Mapping[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
}


def reason_not_native(definition: Definition, columns: Mapping[str, str]) -> str | None:
    """Return the reason why the native engine cannot compute a definition; None if it can.

    Args:
        definition: the definition.
        columns: the columns of the source, with their Spark SQL types.
    """
    return next(_list_reasons(definition, columns), None)


def describe_engine(definition: Definition, columns: Mapping[str, str]) -> str:
    """Return the engine that computes the windows of a definition; for Spark with the reason."""
    if definition.backfill.engine == "spark":
        return "spark, as set in backfill.engine"
    reason = reason_not_native(definition, columns)
    return f"spark, because {reason}" if reason else "native"


class NotNativeError(SpecError):
    """The native engine is requested, and cannot compute a definition."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def require_engine(definition: Definition, columns: Mapping[str, str], where: str) -> None:
    """Check that the requested engine can compute a definition.

    Raises:
        NotNativeError: with the reason why the native engine cannot.
    """
    reason = reason_not_native(definition, columns) if definition.backfill.engine == "native" else None
    if reason:
        msg = (
            f'backfill.engine = "native" cannot run {definition.name}: {reason} ({where})\n\n'
            'hint: with "auto", Spark computes definitions that the native engine does not support'
        )
        raise NotNativeError(msg, reason)


def native_aggregates(definition: Definition, columns: Mapping[str, str]) -> list[Aggregate]:
    """Return the aggregates of a definition.

    Raises:
        ValueError: if one of them is not on the whitelist.
    """
    aggregates = [(name, parse_aggregate(name, call, columns)) for name, call in definition.aggregates.items()]
    unsupported = [name for name, aggregate in aggregates if aggregate is None]
    if unsupported:
        msg = f"the native engine does not support the aggregate {unsupported[0]}"
        raise ValueError(msg)
    return [aggregate for _, aggregate in aggregates if aggregate is not None]


def read_spec(definition: Definition, columns: Mapping[str, str], also: Iterable[str] = ()) -> ReadSpec:
    """Return how to read records, with some columns besides those of event time and arrival order.

    The raw file of a prepared record is read, too, if it decides which of several copies counts.

    Args:
        definition: the definition of an event.
        columns: the columns of the source, with their Spark SQL types.
        also: the names of further columns.
    """
    source = definition.timed_source
    times = (source.event_time, source.arrival_time or source.event_time)
    names = [name for name in (*times, source.partition, source.sequence, *also) if name]
    names += {FILE}.intersection(columns) if source.deduplicate_on else ()
    names += [definition.condition] if definition.condition else []
    types = {name: columns[name] for name in dict.fromkeys(names)}
    valid, zone = Interval(*source.event_time_range), definition.window.spec().zone
    return ReadSpec(*times, source.partition, source.sequence, types, valid, zone, definition.condition)


def reason_not_readable(definition: Definition, columns: Mapping[str, str]) -> str | None:
    """Return the reason why the native engine cannot read the records of a definition; None if it can."""
    return next(_list_reading_reasons(definition, columns), None)


def _list_reasons(definition: Definition, columns: Mapping[str, str]) -> Iterator[str]:
    if definition.code_columns is not None:
        yield _describe_code(definition)
    window = definition.window.spec()
    if isinstance(window, Session):
        yield from _list_session_reasons(definition, window)
    elif window.has_gaps:
        yield "windows have gaps between them"
    yield from _list_reading_reasons(definition, columns)
    for name in definition.source.key:
        if columns.get(name) not in GROUPED and not DECIMAL.fullmatch(columns.get(name, "")):
            yield f"source.key {name!r} has the type {columns.get(name)}"
    for name in definition.source.deduplicate_on:
        if columns.get(name) not in {*GROUPED, *TIMES} and not DECIMAL.fullmatch(columns.get(name, "")):
            yield f"source.deduplicate_on {name!r} has the type {columns.get(name)}"
    for name, call in definition.aggregates.items():
        if parse_aggregate(name, call, columns) is None:
            yield f"aggregates.{name} is {call}"


def _describe_code(definition: Definition) -> str:
    if definition.join:
        return "[join] needs the records of a key one after the other"
    reads_all = definition.process is not None and definition.process.state_reach is None
    code = f"[{'job' if definition.job else 'process'}] is your own code"
    return f"{code} without a state_reach: it reads the whole source" if reads_all else code


def _list_session_reasons(definition: Definition, window: Session) -> Iterator[str]:
    emission = definition.emission
    if emission.emits_at_raises or any(
        strategy.kind in _STRATEGIES_BETWEEN_TICKS for strategy in emission.strategies
    ):
        yield "windows are sessions, and watermarks may move between two ticks"
    latest_ms = max(map(abs, definition.source.event_time_range))
    if latest_ms + window.gap_ms + definition.lateness.allowed > _MAX_TIME_MS:
        yield "windows are sessions, and times or lateness are near the limit of 64 bits"


def _list_reading_reasons(definition: Definition, columns: Mapping[str, str]) -> Iterator[str]:
    source = definition.timed_source
    times = {"source.event_time": source.event_time, "source.arrival_time": source.arrival_time}
    for key, name in times.items():
        if name is not None and columns.get(name) not in TIMES:
            yield f"{key} is not a timestamp column: {name}"
    if source.partition and columns.get(source.partition) not in {*INTEGERS, "string"}:
        yield f"source.partition {source.partition!r} is neither an integer nor a string"
    if source.sequence and columns.get(source.sequence) not in INTEGERS:
        yield f"source.sequence {source.sequence!r} is not an integer"


def parse_aggregate(name: str, call: str, columns: Mapping[str, str]) -> Aggregate | None:
    """Return the aggregate; None if its function or the type of its column is not on the whitelist."""
    try:
        parsed = sqlglot.parse_one(call, dialect="spark")
    except SqlglotError:
        return None
    function, argument = _FUNCTIONS.get(type(parsed)), parsed.this
    if function is None or any(value for key, value in parsed.args.items() if key not in ("this", "big_int")):
        return None
    if function == "count" and (isinstance(argument, exp.Star) or _is_number(argument)):
        return Aggregate(name, function, None)
    if type(argument) is not exp.Column or argument.table or isinstance(argument.this, exp.Star):
        return None
    type_name = columns.get(argument.name, "")
    is_supported = type_name in _types_of(function) or (
        function != "avg" and DECIMAL.fullmatch(type_name) is not None
    )
    return Aggregate(name, function, argument.name) if is_supported else None


def _types_of(function: str) -> set[str]:
    """Return the column types that a function supports, besides decimals."""
    if function in ("sum", "avg"):
        return {*INTEGERS, *FLOATING}
    # In both engines, NaN is greater than any other number, and -0.0 equals 0.0.
    return {*GROUPED, *TIMES, *FLOATING}


def _is_number(argument: exp.Expr) -> bool:
    return isinstance(argument, exp.Literal) and argument.is_int
