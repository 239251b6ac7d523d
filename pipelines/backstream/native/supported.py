"""Which definitions the native engine computes: a whitelist, so that whatever it does not know runs on Spark.

Each entry gives the value that Spark's own aggregate gives. Integers and decimals are equal to the last digit. A
sum of doubles depends on the order in which they are added, in Spark as in DuckDB, so its last digits may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermarks import EmissionModel
from backstream.eventtime.windows import Session, Sliding
from backstream.native.task import DECIMAL, FLOATING, GROUPED, INTEGERS, TIMES, Aggregate, ReadSpec

_BETWEEN_TICKS = (StrategyKind.PUNCTUATED, StrategyKind.CUSTOM)
_FAR_MS = MAX_MS // 4
"""Beyond it a merge of sessions may overflow, as it does in Flink; Spark's kernels know when."""
_FUNCTIONS: Mapping[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
}


def reason_not_native(definition: Definition, columns: Mapping[str, str]) -> str | None:
    """Return why the native engine cannot run a definition; None: it can.

    Args:
        definition: what is asked for.
        columns: the source's columns, with their Spark SQL types.
    """
    return next(_reasons(definition, columns), None)


def describe_engine(definition: Definition, columns: Mapping[str, str]) -> str:
    """Return which engine computes the windows of a definition, and why if it is not the native one."""
    if definition.backfill.engine == "spark":
        return "spark, as backfill.engine says"
    reason = reason_not_native(definition, columns)
    return f"spark, since {reason}" if reason else "native"


def require_engine(definition: Definition, columns: Mapping[str, str], where: str) -> None:
    """Check that the engine that a definition asks for can run it.

    Raises:
        SpecError: with the reason why the native engine cannot.
    """
    reason = reason_not_native(definition, columns) if definition.backfill.engine == "native" else None
    if reason:
        msg = (
            f'backfill.engine = "native" cannot run {definition.name}: {reason} ({where})\n\n'
            'hint: with "auto", Spark runs what the native engine does not know'
        )
        raise SpecError(msg)


def native_aggregates(definition: Definition, columns: Mapping[str, str]) -> list[Aggregate]:
    """Return the aggregates of a definition.

    Raises:
        ValueError: when one is not on the whitelist.
    """
    found = [(name, _aggregate(name, call, columns)) for name, call in definition.aggregates.items()]
    unknown = [name for name, aggregate in found if aggregate is None]
    if unknown:
        msg = f"the native engine has no aggregate {unknown[0]}"
        raise ValueError(msg)
    return [aggregate for _, aggregate in found if aggregate is not None]


def read_spec(definition: Definition, columns: Mapping[str, str], also: Iterable[str] = ()) -> ReadSpec:
    """Return how records are read, with some columns besides those that say when and where.

    Args:
        definition: what an event is.
        columns: the source's columns, with their Spark SQL types.
        also: names of columns.
    """
    source = definition.timed_source
    times = (source.event_time, source.arrival_time or source.event_time)
    named = [name for name in (*times, source.partition, source.sequence, *also) if name]
    types = {name: columns[name] for name in dict.fromkeys(named)}
    return ReadSpec(*times, source.partition, source.sequence, types, Interval(*source.event_time_range))


def reason_not_readable(definition: Definition, columns: Mapping[str, str]) -> str | None:
    """Return why the native engine cannot read the records of a definition; None: it can."""
    return next(_reasons_against_reading(definition, columns), None)


def _reasons(definition: Definition, columns: Mapping[str, str]) -> Iterator[str]:
    window = definition.window.spec()
    if isinstance(window, Session):
        yield from _reasons_against_sessions(definition, window)
    elif isinstance(window, Sliding) and window.slide_ms > window.size_ms:
        yield "windows have holes between them"
    yield from _reasons_against_reading(definition, columns)
    for name in definition.source.key:
        if columns.get(name) not in GROUPED and not DECIMAL.fullmatch(columns.get(name, "")):
            yield f"source.key {name!r} has the type {columns.get(name)}"
    for name in definition.source.deduplicate_on:
        if columns.get(name) not in {*GROUPED, *TIMES} and not DECIMAL.fullmatch(columns.get(name, "")):
            yield f"source.deduplicate_on {name!r} has the type {columns.get(name)}"
    for name, call in definition.aggregates.items():
        if _aggregate(name, call, columns) is None:
            yield f"aggregates.{name} is {call}"


def _reasons_against_sessions(definition: Definition, window: Session) -> Iterator[str]:
    emission = definition.watermark.spec()
    if emission.model is EmissionModel.RECORD or emission.strategy.kind in _BETWEEN_TICKS:
        yield "windows are sessions, and watermarks may move between two ticks"
    latest_ms = max(map(abs, definition.source.event_time_range))
    if latest_ms + window.gap_ms + definition.lateness.allowed > _FAR_MS:
        yield "windows are sessions, and times or lateness are near the limit of 64 bits"


def _reasons_against_reading(definition: Definition, columns: Mapping[str, str]) -> Iterator[str]:
    source = definition.timed_source
    times = {"source.event_time": source.event_time, "source.arrival_time": source.arrival_time}
    for key, name in times.items():
        if name is not None and columns.get(name) not in TIMES:
            yield f"{key} is not a timestamp column: {name}"
    if source.partition and columns.get(source.partition) not in {*INTEGERS, "string"}:
        yield f"source.partition {source.partition!r} is neither an integer nor a string"
    if source.sequence and columns.get(source.sequence) not in INTEGERS:
        yield f"source.sequence {source.sequence!r} is not an integer"


def _aggregate(name: str, call: str, columns: Mapping[str, str]) -> Aggregate | None:
    """Return the aggregate, if it is one of a column whose type it may be computed of."""
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
    kind = columns.get(argument.name, "")
    is_known = kind in _kinds(function) or (function != "avg" and DECIMAL.fullmatch(kind) is not None)
    return Aggregate(name, function, argument.name) if is_known else None


def _kinds(function: str) -> set[str]:
    """Return the types of columns that a function takes, besides decimals."""
    if function in ("sum", "avg"):
        return {*INTEGERS, *FLOATING}
    # To both engines NaN is greater than any other number, and -0.0 is 0.0.
    return {*GROUPED, *TIMES, *FLOATING}


def _is_number(argument: exp.Expr) -> bool:
    return isinstance(argument, exp.Literal) and argument.is_int
