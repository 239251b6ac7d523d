"""Derive the columns of a definition's tables, and check the definition against the columns of its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from backstream.definition.aggregates import aggregate_problem, is_known, record_problem
from backstream.definition.model import Definition
from backstream.definition.nested_columns import paths_of
from backstream.definition.prepared_columns import FILE, PREPARED_COLUMNS
from backstream.definition.result_sections import Top
from backstream.definition.result_types import ResultTypes, Types, field_type, spark_type
from backstream.errors import SpecError, format_problems
from backstream.runs.table_schemas import JOB_COLUMNS, RECORD_COUNT, WORKING_COLUMNS, Column

_ICEBERG_TYPES = {
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "date": "date",
    "string": "string",
    "timestamp": "timestamptz",
}
_SPARK_TYPES = {"long": "bigint", "timestamptz": "timestamp"}
_LENGTH = re.compile(r"(var)?char(\(\d+\))?")
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
_ARRAY = re.compile(r"array<(.+)>")
_NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"}
_NO_COLUMN = "which is not a column"
_MAX_COLUMNS_SHOWN = 20


def key_columns(definition: Definition, source: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the key columns with their Iceberg types.

    Args:
        definition: definition with the keys.
        source: map from column name to Spark SQL type, e.g., `{"origin": "string"}`.

    Raises:
        SpecError: when a result column cannot have the type of a key.
    """
    return tuple(
        Column(name, _primitive_type(source[name], source[name], f"source.key {name!r} of {definition.name}"))
        for name in definition.source.key
    )


def value_columns(definition: Definition, source: Mapping[str, str]) -> tuple[Column, ...]:
    """Return a column per aggregate and derived column, and of the rank; types follow from those of the source.

    User code declares its columns with their types.

    Raises:
        SpecError: when the type cannot be determined.
    """
    if definition.code_columns is not None:
        return declared_columns(definition)
    returns = {name: function.returns for name, function in definition.functions.items()}
    aggregates = [
        Column(name, _aggregate_type(f"aggregates.{name} of {definition.name}", call, source, returns))
        for name, call in definition.aggregates.items()
    ]
    known = {column.name: spark_type_name(column.type) for column in aggregates}
    known |= {name: source[name] for name in definition.source.key}
    known |= {"window_start": "timestamp", "window_end": "timestamp"}
    derived = (
        Column(name, _aggregate_type(f"derive_after.{name} of {definition.name}", text, known, returns))
        for name, text in definition.derive_after.items()
    )
    rank = [Column(definition.top.rank, "long")] if definition.top and definition.top.rank else []
    return (*aggregates, *derived, *rank)


def declared_columns(definition: Definition) -> tuple[Column, ...]:
    """Return the columns that a job, a process function, or a join declares, with their Iceberg types.

    Raises:
        SpecError: when a type is unknown, or a result column cannot have it.
    """
    columns = []
    for name, text in (definition.code_columns or {}).items():
        key = f"{definition.code_key(name)} of {definition.name}"
        try:
            kind = exp.DataType.build(text, dialect="spark")
        except (SqlglotError, ValueError):
            msg = f"{key} must be a type of Spark SQL such as bigint or string, got {text!r}"
            raise SpecError(msg) from None
        columns.append(Column(name, _iceberg_type(spark_type(kind), key)))
    return tuple(columns)


def require_columns(definition: Definition, source: Mapping[str, str], where: str) -> None:
    """Check that the source has all columns of a definition, and that the aggregates are valid.

    Raises:
        SpecError: with the key and the value of each error, and the columns of the source.
    """
    has = partial(_has_path, source=source)
    problems = list_missing_columns(definition, has)
    for key, expression in _times(definition).items():
        problems += list_unknown_columns(key, expression, has)
    problems += [*_invalid_aggregates(definition, has), *_invalid_result_expressions(definition)]
    problems += _invalid_functions(definition)
    if problems := problems or _reserved_columns(definition, source):
        raise column_error(problems, source, where)


def column_error(problems: list[str], source: Iterable[str], where: str) -> SpecError:
    """Return the error for problems of a definition, with the columns of the source if one is missing."""
    names = list(source)
    more = f" and {len(names) - _MAX_COLUMNS_SHOWN} more" if len(names) > _MAX_COLUMNS_SHOWN else ""
    has_missing_column = any(_NO_COLUMN in problem for problem in problems)
    hint = f"\n\nhint: the source has {', '.join(names[:_MAX_COLUMNS_SHOWN])}{more}" if has_missing_column else ""
    return SpecError(format_problems("problems", problems, where) + hint)


def payload_columns(definition: Definition, source: Iterable[str] = ()) -> list[str]:
    """Return the source columns of keys, deduplication, and aggregates or user code.

    Args:
        definition: the definition.
        source: all columns of the source, for user code that reads them all.
    """
    named = {*definition.source.key, *definition.source.deduplicate_on}
    if definition.reads_all_columns:
        named |= set(source).difference(PREPARED_COLUMNS)
    named |= set(definition.code_reads)
    for call in definition.aggregates.values():
        named |= _names(_parse(call))
    return sorted(named)


def source_columns(definition: Definition, source: Iterable[str] = ()) -> list[str]:
    """Return all source columns of a definition, with those of times, partition, and sequence.

    Args:
        definition: the definition.
        source: all columns of the source, for user code that reads them all, and for the order of duplicates.
    """
    spec = definition.source
    named = {*payload_columns(definition, source), *(name for name in (spec.partition, spec.sequence) if name)}
    named |= {FILE}.intersection(source) if spec.deduplicate_on else set()
    texts = [definition.marker, definition.condition]
    for expression in (*_times(definition).values(), *filter(None, texts)):
        named |= _names(_parse(expression))
    return sorted(named)


def list_missing_columns(definition: Definition, has: Callable[[str], bool]) -> list[str]:
    """Return the problem of each name and of the watermark's marker that is no column of the source.

    Args:
        definition: the definition.
        has: returns whether the source has a column, or a dotted path into one.
    """
    spec = definition.source
    named = [("source.partition", spec.partition), ("source.sequence", spec.sequence)]
    named += [("source.key", column) for column in spec.key]
    named += [("source.deduplicate_on", column) for column in spec.deduplicate_on]
    code = [("job.reads", definition.job), ("process.reads", definition.process)]
    named += [
        (definition.code_key(column) if definition.join else key, column)
        for key, section in code
        if section
        for column in section.reads or ()
    ]
    problems = [f"{key} names {column!r}, {_NO_COLUMN}" for key, column in named if column and not has(column)]
    return problems + list_unknown_columns("watermark.marker", definition.marker or "null", has)


def _times(definition: Definition) -> dict[str, str]:
    """Return the SQL of the times by key."""
    spec = definition.source
    times = {"source.event_time": spec.event_time, "source.arrival_time": spec.arrival_time}
    return {key: expression for key, expression in times.items() if expression}


def _reserved_columns(definition: Definition, source: Mapping[str, str]) -> list[str]:
    """Return problems of columns with reserved names; the partition and the sequence can have their own names."""
    spec = definition.source
    own = {"source_partition": spec.partition, "arrival_seq": spec.sequence}
    reserved = WORKING_COLUMNS | (JOB_COLUMNS if definition.job else frozenset())
    hint = ", unless job.reads or process.reads leaves it out" if definition.reads_all_columns else ""
    return [
        f"column {name!r} cannot be used, because backstream reserves this name{hint}"
        for name in payload_columns(definition, source)
        if name.lower() in reserved and own.get(name) != name
    ]


def _invalid_aggregates(definition: Definition, has: Callable[[str], bool]) -> list[str]:
    problems = []
    for name, call in definition.aggregates.items():
        key = f"aggregates.{name}"
        unknown = list_unknown_columns(key, call, has)
        problem = None if unknown else aggregate_problem(call, definition.functions, definition.source.key)
        problems += [f"{key} {problem}, got {call!r}"] if problem else unknown
    return problems


def _invalid_functions(definition: Definition) -> Iterator[str]:
    """Yield the problems of custom functions: a name that Spark has, and a type that it doesn't have."""
    for name, function in definition.functions.items():
        if is_known(name):
            yield f"functions.{name} has the name of a function of Spark"
        try:
            exp.DataType.build(function.returns, dialect="spark")
        except SqlglotError:
            yield f"functions.{name}.returns must be a type of Spark SQL such as double, got {function.returns!r}"


def _invalid_result_expressions(definition: Definition) -> Iterator[str]:
    """Yield the problems of the expressions over the columns of the result."""
    names = {*definition.source.key, *definition.aggregates, "window_start", "window_end"}
    texts = [(f"derive_after.{name}", text, names) for name, text in definition.derive_after.items()]
    names = {*names, *definition.derive_after, RECORD_COUNT}
    if definition.having:
        texts.append(("having.condition", definition.having.condition, names))
    if definition.top:
        try:
            texts += [("top.by", term, names) for term in _order_terms(definition.top)]
        except SpecError as error:
            yield f"top.by {error}"
    for key, text, allowed in texts:
        try:
            unknown = sorted(_names(_parse(text)) - allowed)
        except SpecError as error:
            yield f"{key} {error}"
            continue
        if unknown:
            yield f"{key} names {unknown[0]!r}, which the result does not have, in {text!r}"
        elif problem := record_problem(text, definition.functions):
            yield f"{key} {problem}, got {text!r}"


def _order_terms(top: Top) -> list[str]:
    """Return the expressions of an order without their directions."""
    rank = _parse(top.over(), top.by)
    order = rank.args.get("order") if isinstance(rank, exp.Window) and not rank.args.get("spec") else None
    if order is None or top.by.rstrip().endswith(","):  # sqlglot ignores a last comma
        msg = f"must be an order such as 'revenue desc, shop', got {top.by!r}"
        raise SpecError(msg)
    return [ordered.this.sql(dialect="spark") for ordered in order.expressions]


def list_unknown_columns(key: str, text: str, has: Callable[[str], bool]) -> list[str]:
    """Return the problem of each column of an expression that the source does not have.

    Args:
        key: the key of the expression.
        text: the expression.
        has: returns whether the source has a column, or a dotted path into one.
    """
    try:
        _parse(text)
    except SpecError as error:
        return [f"{key} {error}"]
    missing = [path for path in map(".".join, sorted(paths_of(text))) if not has(path)]
    return [f"{key} names {name!r}, {_NO_COLUMN}" + (f", in {text!r}" if text != name else "") for name in missing]


def _has_path(path: str, source: Mapping[str, str]) -> bool:
    """Return whether the source has a column, and the fields behind it."""
    name, *fields = path.split(".")
    kind = source.get(name)
    for field in fields:
        kind = field_type(kind, field) if kind else None
    return kind is not None


def _names(parsed: exp.Expr) -> set[str]:
    """Return the names of the columns in an expression, without the fields behind them."""
    columns = parsed.find_all(exp.Column)
    return {column.parts[0].name for column in columns if not isinstance(column.this, exp.Star)}


def _parse(text: str, written: str | None = None) -> exp.Expr:
    """Return the parsed expression; the caller adds the key to the message of an error.

    `written` is what the definition has, if it is a part of the text.
    """
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        msg = f"is not SQL: {_parse_problem(error)}, got {written or text!r}"
        raise SpecError(msg) from None


def _parse_problem(error: SqlglotError) -> str:
    if not isinstance(error, ParseError):
        return "a quotation is not closed"
    # The rest of the text names a class of sqlglot, which doesn't help a reader.
    return str(error.errors[0]["description"]).partition(" for <class")[0] if error.errors else "it is empty"


def _aggregate_type(key: str, call: str, source: Types, functions: Types) -> str:
    """Return the type of an expression in Iceberg's spelling."""
    parsed, types = _parse(call), ResultTypes(source, functions)
    kind = types.of(parsed)
    if kind is None:
        _require_numbers(key, call, parsed, types)
        msg = (
            f"cannot determine the type of {key}: {call!r}\n\n"
            "hint: put a cast to its type around it, e.g., cast(.. as double) or cast(.. as string)"
        )
        raise SpecError(msg)
    return _iceberg_type(kind, key)


def _require_numbers(key: str, call: str, parsed: exp.Expr, types: ResultTypes) -> None:
    for node in parsed.find_all(exp.Sum, exp.Avg):
        kind = types.of(node.this)
        if kind is not None and kind.partition("(")[0] not in _NUMBERS:
            msg = f"{key} must be over numbers, got {call!r} over a {kind}"
            raise SpecError(msg)


def _iceberg_type(kind: str, key: str) -> str:
    if array := _ARRAY.fullmatch(kind):
        return f"list<{_primitive_type(array[1], kind, key)}>"
    return _primitive_type(kind, kind, key)


def _primitive_type(kind: str, whole: str, key: str) -> str:
    if _DECIMAL.fullmatch(kind):
        return kind
    if _LENGTH.fullmatch(kind):
        return "string"
    if kind in _ICEBERG_TYPES:
        return _ICEBERG_TYPES[kind]
    nested = " (to_json(..) makes text of it)" if "<" in kind else ""
    msg = f"{key} has the type {whole}, which a result column cannot have{nested}"
    raise SpecError(msg)


def spark_type_name(kind: str) -> str:
    """Return the name of an Iceberg type of a result column in Spark SQL."""
    if kind.startswith("list<"):
        return f"array<{spark_type_name(kind[len('list<') : -1])}>"
    return _SPARK_TYPES.get(kind, kind)
