"""Translate one INSERT of a Flink SQL script into the content of a definition, as TOML would give it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import sqlglot
from sqlglot import exp

from backstream.definition.flink_sql.expressions import (
    Expressions,
    SqlValue,
    is_aggregate,
    place_of,
    quote_identifier,
)
from backstream.definition.flink_sql.options import local_time_zone, watermark_section
from backstream.definition.flink_sql.queries import (
    END,
    RANK,
    START,
    TIME,
    QueryReader,
    Relation,
    ScriptJoin,
    ScriptTop,
)
from backstream.definition.flink_sql.script import ColumnOfTable, FlinkScript, InsertStatement, ScriptText
from backstream.definition.flink_sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_LTZ,
    FlinkType,
    holds_all,
    type_of_cast,
)
from backstream.definition.result_types import ResultTypes
from backstream.errors import SpecError
from backstream.eventtime.instants import duration_text
from backstream.eventtime.joins.rule import SIDE
from backstream.runs.table_schemas import RESULT_COLUMNS, USER_CODE_COLUMNS

_METADATA = {"timestamp": "arrival_time", "partition": "partition", "offset": "sequence"}
"""The keys of `[source]` with the values of Kafka's metadata."""
_TEXT_FORMATS = ("json", "csv")
_WINDOW_COLUMNS = (START, END)
_KEPT = "is_kept"
"""The derived column with the condition of each side of a join."""
_RESERVED = RESULT_COLUMNS | USER_CODE_COLUMNS | {SIDE, _KEPT}
_GIVEN_SECTIONS = (
    "watermark",
    "window",
    "aggregates",
    "filter",
    "having",
    "top",
    "derive_after",
    "job",
    "process",
    "time",
    "lateness",
)
_GIVEN_KEYS = ("event_time", "event_time_unit", "event_time_pattern", "key", "derive", "where", "transform")
_KINDS = {"TUMBLE": "tumbling", "HOP": "sliding", "CUMULATE": "cumulate", "SESSION": "session"}
_KEYS = {"SIZE": "size", "SLIDE": "slide", "STEP": "step", "GAP": "gap", "OFFSET": "offset"}
_WATERMARK_KEYS = frozenset(("clock_start", "topology", "finished_partitions"))
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")


@dataclass(frozen=True, slots=True)
class ScriptedInsert:
    """The content of a definition, and for each column of the sink its type, and the column of the result."""

    content: Mapping[str, Any]
    columns: Mapping[str, str]
    types: Mapping[str, FlinkType]
    topics: tuple[str, ...]
    """The topic of each source; empty text if the script names none."""


def expand_script(content: Mapping[str, Any], script: ScriptText, where: str) -> ScriptedInsert:
    """Return the content of a definition with all that its script says in place of `[flink_sql]`.

    Args:
        content: the content of the TOML file.
        script: the text of the script.
        where: the TOML file, for messages.

    Raises:
        SpecError: with line and column of the script, if a definition cannot express it; or with a key that only
            the script may give.
    """
    section, source = content["flink_sql"], content.get("source", {})
    sources = [source] if isinstance(source, Mapping) else source
    for key, given in (
        *((name, name in content) for name in _GIVEN_SECTIONS if name != "watermark"),
        *((f"source.{name}", name in each) for each in sources for name in _GIVEN_KEYS),
        *((f"watermark.{name}", name not in _WATERMARK_KEYS) for name in content.get("watermark", {})),
    ):
        if given:
            msg = f"{key} has no meaning with [flink_sql], because the script gives it ({where})"
            raise SpecError(msg)
    read = FlinkScript.read(script)
    insert = _choose_insert(read, section.get("insert"), where)
    rows, value = QueryReader(read).read(insert.query), section.get("value")
    if isinstance(rows, ScriptJoin):
        named = _sources_of_sides(rows, sources, where)
        sides = [
            _Translation(read, insert, each, value, where, side)
            for each, side in zip(named, rows.sides, strict=True)
        ]
        translated = _JoinTranslation(rows, sides[0], sides[1]).to_content()
    elif isinstance(source, Mapping):
        named = [source]
        translated = _Translation(read, insert, source, value, where, rows).to_content()
    else:
        msg = f"several sources are not possible with this [flink_sql]: the script reads one table ({where})"
        raise SpecError(msg)
    added = translated.content
    publish = {} if isinstance(rows, ScriptJoin) else {"publish": "live"}
    merged_sources = [{**each, **more} for each, more in zip(named, added["source"], strict=True)]
    merged = {
        **content,
        **added,
        "source": merged_sources if isinstance(rows, ScriptJoin) else merged_sources[0],
        "watermark": {**added["watermark"], **content.get("watermark", {})},
        "backfill": {"mode": "replay", **publish, **content.get("backfill", {})},
    }
    return replace(translated, content=merged)


def joined_sources(script: ScriptText, insert: str | None, where: str) -> tuple[str, ...]:
    """Return the names of both `[[source]]` of an INSERT with a join; empty without one."""
    read = FlinkScript.read(script)
    rows = QueryReader(read).read(_choose_insert(read, insert, where).query)
    return tuple(_source_name(side) for side in rows.sides) if isinstance(rows, ScriptJoin) else ()


def _source_name(relation: Relation) -> str:
    return snake_name(relation.table.name.rpartition(".")[2])


def _sources_of_sides(
    rows: ScriptJoin, sources: Sequence[Mapping[str, Any]], where: str
) -> list[Mapping[str, Any]]:
    """Return the sources of the left and the right table."""
    by_name = {each.get("name"): each for each in sources}
    names = [_source_name(side) for side in rows.sides]
    if len(sources) != len(names) or by_name.keys() != {*names}:
        msg = f"a join needs two [[source]] with the names of its tables, {names[0]} and {names[1]} ({where})"
        raise SpecError(msg)
    return [by_name[name] for name in names]


def _choose_insert(script: FlinkScript, name: str | None, where: str) -> InsertStatement:
    found = [insert for insert in script.inserts if name in (None, insert.sink)]
    if len(found) == 1:
        return found[0]
    sinks = ", ".join(insert.sink for insert in script.inserts)
    if not script.inserts:
        script.source.refuse(0, "the script has no INSERT INTO")
    problem = f"is missing: the script inserts into {sinks}"
    if name is not None:
        problem = f"must be one of {sinks}, each with one INSERT, got {name!r}"
    msg = f"flink_sql.insert {problem} ({where})"
    raise SpecError(msg)


def snake_name(name: str) -> str:
    """Return a name in snake case, as names of a definition are."""
    words = [word.lower() for word in _WORD.findall(name)]
    text = "_".join(words)
    return text if text[:1].isalpha() else f"column_{text}".rstrip("_")


@dataclass
class _Translation:
    """The translation of one INSERT. Columns of the table become derived columns when an expression needs them."""

    script: FlinkScript
    insert: InsertStatement
    source: Mapping[str, Any]
    value: str | None
    where: str
    relation: Relation
    derive: dict[str, str] = field(default_factory=dict)
    aggregates: dict[str, SqlValue] = field(default_factory=dict)
    derive_after: dict[str, str] = field(default_factory=dict)
    _derived: dict[str, SqlValue] = field(default_factory=dict)
    _fields: dict[str, FlinkType] = field(default_factory=dict)
    _keys: dict[str, tuple[str, FlinkType]] = field(default_factory=dict)
    _calls: dict[str, str] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _rank: str | None = None

    @cached_property
    def zone(self) -> str | None:
        """The time zone of `TIMESTAMP_LTZ`; None for UTC."""
        return local_time_zone(self.script)

    def over_table(self) -> Expressions:
        """Return the translation of expressions over the columns of the table."""
        return Expressions(self.script.source, self._column, zone=self.zone)

    def to_content(self) -> ScriptedInsert:
        """Return the content of a definition."""
        relation = self.relation
        if relation.keys is None:
            self.script.source.refuse(
                self.insert.at, "an INSERT without a window is not possible: it has no aggregation"
            )
        watermark = watermark_section(self.script, relation.table)
        window = self.window_section()
        self.require_unique_names()
        names = self.sink_columns([*relation.columns])
        self._add_keys(names)
        condition = " and ".join(self._grouped_condition(each) for each in relation.conditions)
        columns, types = self._add_values(names)
        having = " and ".join(self._having(each) for each in relation.having)
        top = {"top": self._top(relation.top)} if relation.top else {}
        self._rename_colliding()
        content: dict[str, Any] = {
            "source": [self.source_section([name for name, _ in self._keys.values()])],
            "watermark": watermark,
            "window": window,
            "aggregates": {name: value.sql for name, value in self.aggregates.items()},
        }
        content |= {"filter": {"where": condition}} if condition else {}
        content |= {"derive_after": self.derive_after} if self.derive_after else {}
        content |= {"having": {"condition": having}} if having else {}
        content |= top
        return ScriptedInsert(content, columns, types, (self.topic,))

    @property
    def topic(self) -> str:
        """The topic of the table; empty text if the script names none."""
        return self.relation.table.options.get("topic", ("", 0))[0]

    # The source

    def source_section(self, key: Sequence[str]) -> dict[str, Any]:
        """Return what the table gives to `[source]`."""
        event_time = self._event_time()
        section = {**event_time, "key": list(key)}
        section |= {"derive": dict(self.derive)} if self.derive else {}
        if self._is_text:
            section["columns"] = {**self.source.get("columns", {}), **self._declared_columns()}
        return section

    @property
    def _is_text(self) -> bool:
        return self.source.get("format") in _TEXT_FORMATS

    def _declared_columns(self) -> dict[str, str]:
        """Return the declared columns of a text format: the used fields of the value."""
        kinds = {name: _type_in_files(kind) for name, kind in self._fields.items()}
        given = {*self.source.get("columns", {})}
        if self.value:
            if self.value in given:
                key = f"source.columns.{self.value}"
                msg = f"{key} has no meaning with [flink_sql], because the script gives it ({self.where})"
                raise SpecError(msg)
            fields = ", ".join(f"{quote_identifier(name)}: {kind}" for name, kind in kinds.items())
            return {self.value: f"struct<{fields}>"}
        return {name: kind for name, kind in kinds.items() if name not in given}

    def _path(self, name: str) -> str:
        return ".".join(quote_identifier(part) for part in ((self.value, name) if self.value else (name,)))

    def _event_time(self) -> dict[str, Any]:
        table = self.relation.table
        assert table.watermark is not None  # noqa: S101 - `watermark_section` has checked it
        name = table.watermark[0]
        column = table.columns.get(name)
        if column is None:
            self.script.source.refuse(table.watermark[2], f"{table.name} has no column {name!r}")
        node = column.computed
        if node is None:
            return self._stored_time(column)
        if stored := self._time_from_field(node):
            return stored
        found = self.over_table().of(node)
        if not found.kind.is_time:
            self.script.source.refuse(
                column.at, f"the time of the watermark must be a TIMESTAMP, got {found.kind}"
            )
        return {"event_time": found.sql}

    def _time_from_field(self, node: exp.Expr) -> dict[str, Any] | None:
        """Return the settings of a time that one field holds; None if it is computed in another way."""
        argument = node.this if isinstance(node, exp.Cast) else next(iter(node.expressions), None)
        field_name = argument.name if isinstance(argument, exp.Column) else ""
        stored = self.relation.table.columns.get(field_name)
        if stored is None or stored.kind is None or stored.metadata is not None:
            return None
        before = dict(self.derive), dict(self._derived)
        self.over_table().of(node)  # it checks the types, and refuses other functions
        self.derive, self._derived = before  # the time is read from the file, and needs no derived column
        self._use_field(stored)
        arguments = [each.name for each in node.expressions[1:]]
        match node.name.upper() if isinstance(node, exp.Anonymous) else "CAST":
            case "CAST" if type_of_cast(node.args["to"]) in (TIMESTAMP, TIMESTAMP_LTZ):
                return self._stored_time(stored)
            case "TO_TIMESTAMP_LTZ":
                unit = "s" if arguments == ["0"] else "ms"
                return {"event_time": self._path(field_name), "event_time_unit": unit}
            case "TO_TIMESTAMP":
                pattern = {"event_time_pattern": arguments[0]} if arguments else {}
                return {"event_time": self._path(field_name), **pattern, "time_zone": "UTC"}
        return None

    def _stored_time(self, column: ColumnOfTable) -> dict[str, Any]:
        if column.metadata is not None:
            key = _METADATA.get(column.metadata)
            if key != "arrival_time" or "arrival_time" not in self.source:
                self.script.source.refuse(
                    column.at,
                    f"the metadata {column.metadata!r} is no time of the archive",
                    "set source.arrival_time",
                )
            if self.zone and column.kind and column.kind.name != TIMESTAMP_LTZ.name:
                self.script.source.refuse(
                    column.at, f"the metadata {column.metadata!r} needs TIMESTAMP_LTZ(3): its value is an instant"
                )
            forms = {f"event_time_{form}": self.source.get(f"arrival_time_{form}") for form in ("unit", "pattern")}
            return {"event_time": self.source["arrival_time"]} | {key: form for key, form in forms.items() if form}
        if column.kind is None or not (column.kind.is_time or column.kind == STRING):
            self.script.source.refuse(
                column.at, f"the time of the watermark must be a TIMESTAMP, got {column.kind}"
            )
        self._use_field(column)
        return {"event_time": self._path(column.name), "time_zone": "UTC"}

    def _use_field(self, column: ColumnOfTable) -> None:
        assert column.kind is not None  # noqa: S101 - only fields get here
        if column.kind.spark is None and column.kind.name != "ROW":
            self.script.source.refuse(column.at, f"the type {column.kind} of {column.name} is not possible")
        self._fields[column.name] = column.kind

    def require_unique_names(self) -> None:
        """Check that no two names of the table differ only in case, because Spark takes them for one."""
        seen: dict[str, str] = {}
        for name, column in self.relation.table.columns.items():
            if (other := seen.setdefault(name.lower(), name)) != name:
                self.script.source.refuse(column.at, f"the names {other} and {name} differ only in case")

    def _column(self, node: exp.Expr, path: Sequence[str]) -> SqlValue:
        """Return the value of a column of the table, as a derived column if it is not stored as it is."""
        table = self.relation.table
        column = table.columns.get(path[0])
        if isinstance(node, exp.Placeholder) or column is None:
            self.script.source.refuse(place_of(node), f"there is no column {'.'.join(path)!r} here")
        name = path[0]
        if column.metadata is not None:
            return self._metadata(column)
        if len(path) == 1 and name in self._derived:
            return self._derived[name]
        if column.computed is not None:
            if name in self._open:
                self.script.source.refuse(column.at, f"the column {name} is computed from itself")
            self._open.append(name)
            value = self.over_table().of(column.computed)
            self._open.remove(name)
        else:
            value = self._field_value(column, path)
        if len(path) > 1:
            return value
        self._derived[name] = self._derive(snake_name(name), value, name)
        return self._derived[name]

    def _metadata(self, column: ColumnOfTable) -> SqlValue:
        key = _METADATA.get(column.metadata or "")
        name = self.source.get(key) if key else None
        if name is None or column.kind is None or column.kind.spark is None or key == "arrival_time":
            self.script.source.refuse(
                column.at, f"the metadata {column.metadata!r} is not possible in an expression"
            )
        return SqlValue(f"cast({quote_identifier(name)} as {column.kind.spark})", column.kind)

    def _field_value(self, column: ColumnOfTable, path: Sequence[str]) -> SqlValue:
        kind = column.kind
        self._use_field(column)
        for part in path[1:]:
            fields = dict(kind.fields) if kind else {}
            if part not in fields:
                self.script.source.refuse(column.at, f"{'.'.join(path)} is no field of {kind}")
            kind = fields[part]
        if kind is None or kind.spark is None:
            self.script.source.refuse(column.at, f"the type {kind} of {'.'.join(path)} is not possible")
        sql = ".".join([self._path(path[0]), *map(quote_identifier, path[1:])])
        is_cast = kind.is_text_in_files if self._is_text else True
        return SqlValue(f"cast({sql} as {kind.spark})" if is_cast else sql, kind)

    def _derive(self, wanted: str, value: SqlValue, own: str = "") -> SqlValue:
        """Return a derived column with a value. It may replace its own column of the files, but no other one."""
        if value.sql == quote_identifier(wanted):
            return value
        taken = {*self.derive, *map(str.lower, self.source.get("columns", {}))}
        taken |= {str(self.source.get(key, "")).lower() for key in _METADATA.values()}
        if self.value:
            taken.add(self.value.lower())
        else:
            taken |= {name.lower() for name in self.relation.table.columns if name != own}
        name, number = wanted, 2
        while name in taken:
            name, number = f"{wanted}_{number}", number + 1
        self.derive[name] = value.sql
        return SqlValue(quote_identifier(name), value.kind)

    # The window

    def window_section(self) -> dict[str, str]:
        """Return the section `[window]`."""
        window = self.relation.window
        assert window is not None  # noqa: S101 - an aggregation has one
        lengths = window.intervals_ms
        for part in ("SLIDE", "STEP"):
            is_table_function = window.partition_by is not None
            if part in lengths and is_table_function and lengths["SIZE"] % lengths[part]:
                self.script.source.refuse(
                    window.at, f"the size of {window.kind} must be a multiple of its {part.lower()}"
                )
        if any(length == 0 for name, length in lengths.items() if name != "OFFSET"):
            self.script.source.refuse(window.at, f"the intervals of {window.kind} must be longer than 0")
        is_local = self.zone is not None and self.time_kind.name == TIMESTAMP_LTZ.name
        return {
            "kind": _KINDS[window.kind],
            **{_KEYS[name]: duration_text(length) for name, length in lengths.items()},
            **({"time_zone": self.zone} if self.zone and is_local else {}),
        }

    @cached_property
    def time_kind(self) -> FlinkType:
        """The type of the time of the watermark."""
        table = self.relation.table
        assert table.watermark is not None  # noqa: S101 - `watermark_section` has checked it
        column = table.columns.get(table.watermark[0])
        if column is None or column.computed is None:
            return column.kind if column and column.kind else TIMESTAMP
        before = dict(self.derive), dict(self._derived)
        kind = self.over_table().of(column.computed).kind
        self.derive, self._derived = before  # `_event_time` decides about derived columns
        return kind

    # The result

    def sink_columns(self, selected: Sequence[str]) -> list[str]:
        """Return the names of the result's columns: those that the INSERT names, else those of the sink."""
        sink = self.script.tables.get(self.insert.sink)
        names = list(self.insert.columns) or list(sink.columns if sink else selected)
        if len(names) != len(selected):
            self.script.source.refuse(
                self.insert.at, f"the query has {len(selected)} columns, and {self.insert.sink} {len(names)}"
            )
        return names

    def _add_keys(self, names: Sequence[str]) -> None:
        """Name the keys by the columns of the sink, or else by those of the table."""
        selected = {value.sql(): name for name, value in zip(names, self.relation.columns.values(), strict=True)}
        expressions = self.over_table()
        for key in self.relation.keys or ():
            value = expressions.of(key)
            wanted = snake_name(
                selected.get(key.sql())
                or (key.name if isinstance(key, exp.Column) else f"key_{len(self._keys) + 1}")
            )
            named = self._derived_as(wanted, key, value)
            self._keys[key.sql()] = named.sql.strip("`"), value.kind
        if (top := self.relation.top) and top.are_records:
            self._add_record_keys(top)

    def _add_record_keys(self, top: ScriptTop) -> None:
        """Add the partition and the offset to the key, so that each record is a row."""
        if not {"arrival_time", "partition", "sequence"} <= self.source.keys():
            self.script.source.refuse(
                top.at,
                "ROW_NUMBER of records needs the arrival, the partition, and the offset of each record",
                "set source.arrival_time, source.partition, and source.sequence",
            )
        for key in ("partition", "sequence"):
            name = self.source[key]
            if name in (named for named, _ in self._keys.values()):
                self.script.source.refuse(
                    top.at, f"PARTITION BY has a key with the name of source.{key}, {name!r}"
                )
            self._keys[f"source.{key}"] = name, BIGINT

    def _derived_as(self, wanted: str, key: exp.Expr, value: SqlValue) -> SqlValue:
        """Return a key as a column with the wanted name; a column derived only for it is renamed."""
        current = value.sql.strip("`")
        if current == wanted:
            return value
        if isinstance(key, exp.Column) and current in self.derive and wanted not in self.derive:
            found = self._derive(wanted, SqlValue(self.derive[current], value.kind))
            others = [text for name, text in self.derive.items() if name not in (current, wanted)]
            if not any(re.search(rf"(?<![.\w]){current}\b", text) for text in others):
                del self.derive[current]
            self._derived[key.name] = found
            return found
        return self._derive(wanted, value)

    def _grouped_condition(self, node: exp.Expr) -> str:
        text = self.over_table().condition(node)
        return f"({text})" if isinstance(node, exp.Or) and len(self.relation.conditions) > 1 else text

    def _add_values(self, names: Sequence[str]) -> tuple[dict[str, str], dict[str, FlinkType]]:
        """Add the aggregates and the derived columns, and return the column of the result for each of the sink."""
        sink = self.script.tables.get(self.insert.sink)
        columns: dict[str, str] = {}
        types: dict[str, FlinkType] = {}
        for name, node in zip(names, self.relation.columns.values(), strict=True):
            declared = sink.columns[name].kind if sink and name in sink.columns else None
            columns[name], kind = self._add_value(snake_name(name), node, declared)
            types[name] = declared or kind
        return columns, types

    def _add_value(self, name: str, node: exp.Expr, declared: FlinkType | None) -> tuple[str, FlinkType]:
        if isinstance(node, exp.Placeholder) and node.this in _WINDOW_COLUMNS:
            return str(node.this), TIMESTAMP
        if isinstance(node, exp.Placeholder) and node.this == RANK:
            if self._rank or not (declared is None or holds_all(declared, BIGINT)):
                self.script.source.refuse(place_of(node), "ROW_NUMBER is only possible as one BIGINT of the sink")
            self._rank = name
            return name, BIGINT
        if (key := self._keys.get(node.sql())) and (declared is None or holds_all(declared, key[1])):
            return key
        if name in self.aggregates or name in self.derive_after or name in _WINDOW_COLUMNS:
            self.script.source.refuse(place_of(node), f"two columns of the result have the name {name!r}")
        has_window = node.find(exp.Placeholder) is not None
        if not has_window and any(is_aggregate(each) for each in node.walk()):
            value = self._with_type(self.as_declared(node, self._over_records().of(node), declared))
            self.aggregates[name] = value
            if is_aggregate(node):
                self._calls.setdefault(node.sql(), name)
            return name, value.kind
        value = self._with_type(self.as_declared(node, self._over_result("having").of(node), declared))
        self.derive_after[name] = value.sql
        return name, value.kind

    def _with_type(self, value: SqlValue) -> SqlValue:
        """Return a value of the result, with a cast if its type does not follow from the expression."""
        columns = {START: "timestamp", END: "timestamp"} | (self._declared_columns() if self._is_text else {})
        columns |= {each.sql.strip("`"): _type_name(each.kind) for each in self._derived.values()}
        columns |= {name: _type_name(kind) for name, kind in self._keys.values()}
        columns |= {name: _type_name(each.kind) for name, each in self.aggregates.items()}
        if ResultTypes(columns).of(sqlglot.parse_one(value.sql, dialect="spark")) is not None:
            return value
        return SqlValue(f"cast({value.sql} as {value.kind.spark or 'string'})", value.kind)

    def as_declared(self, node: exp.Expr, value: SqlValue, declared: FlinkType | None) -> SqlValue:
        """Return a value with the type of the sink's column."""
        if declared is None or holds_all(declared, value.kind):
            return value
        is_implicit = value.kind.is_number and (declared.is_floating or declared.name == "DECIMAL")
        if declared.spark is None or not (is_implicit or (value.kind.is_time and declared.is_time)):
            self.script.source.refuse(
                place_of(node), f"{value.kind} is no {declared}, the type of the sink's column"
            )
        if declared.is_time:
            self.over_table().refuse_local_time(node, value.kind, declared)
            return SqlValue(value.sql, declared, value.is_atom)
        return SqlValue(f"cast({value.sql} as {declared.spark})", declared)

    def _over_records(self) -> Expressions:
        """Return the translation of aggregates with expressions around them, over records."""
        return Expressions(
            self.script.source,
            self._result_column,
            lambda node: self._result_value(node, self._aggregate),
            self.zone,
        )

    def _over_result(self, use: str) -> Expressions:
        """Return the translation of expressions over the columns of the result; `use` names further columns."""
        return Expressions(
            self.script.source,
            self._result_column,
            lambda node: self._result_value(node, lambda call: self._named_aggregate(call, use)),
            self.zone,
        )

    def _result_value(self, node: exp.Expr, aggregate: Callable[[exp.Expr], SqlValue]) -> SqlValue | None:
        """Return the column of a key, or the value of an aggregate; None for other expressions."""
        if key := self._keys.get(node.sql()):
            return SqlValue(quote_identifier(key[0]), key[1])
        return aggregate(node) if is_aggregate(node) else None

    def _result_column(self, node: exp.Expr, path: Sequence[str]) -> SqlValue:
        if isinstance(node, exp.Placeholder):
            if node.this == TIME:
                if self.zone and self.time_kind.name == TIMESTAMP_LTZ.name:
                    self.script.source.refuse(
                        place_of(node), f"{TIME} is not possible with windows in local time: it is an instant"
                    )
                return SqlValue(f"{END} - interval 1 milliseconds", self.time_kind, is_atom=False)
            return SqlValue(str(node.this), TIMESTAMP)
        return self.script.source.refuse(place_of(node), f"{'.'.join(path)} is neither a key nor in an aggregate")

    def _named_aggregate(self, node: exp.Expr, use: str) -> SqlValue:
        """Return the column of the result with an aggregate; one that is not selected becomes a further column."""
        name = self._calls.get(node.sql())
        if name is None:
            call = node.this if isinstance(node, exp.Filter) else node
            name = self._add_hidden(f"{call.name.lower()}_of_{use}", self._with_type(self._aggregate(node)))
            self._calls[node.sql()] = name
        return SqlValue(quote_identifier(name), self.aggregates[name].kind)

    def _add_hidden(self, wanted: str, value: SqlValue) -> str:
        """Add an aggregate that the sink does not have, and return its name."""
        name, number = wanted, 2
        while name in self.aggregates or name in self.derive_after:
            name, number = f"{wanted}_{number}", number + 1
        self.aggregates[name] = value
        return name

    def _top(self, top: ScriptTop) -> dict[str, Any]:
        """Return the section `[top]`."""
        terms = [(self._over_result("order").of(each.this).sql, bool(each.args.get("desc"))) for each in top.order]
        if top.are_records:
            arrival = self._add_hidden("arrival", SqlValue(f"min({self._arrival(top)})", BIGINT))
            names = (arrival, *(self.source[key] for key in ("partition", "sequence")))
            terms += [(quote_identifier(name), self._keeps_last(top)) for name in names]
        partition = [self._keys[each.sql()][0] for each in top.partition]
        by = ", ".join(f"{term} desc" if is_descending else term for term, is_descending in terms)
        section: dict[str, Any] = {"n": top.n, "by": by}
        section |= {"partition_by": partition} if partition else {}
        section |= {"ties": "keep"} if top.keeps_ties else {}
        return section | ({"rank": self._rank} if self._rank else {})

    def _arrival(self, top: ScriptTop) -> str:
        """Return the arrival of a record as a number or a time, which have an order."""
        if "arrival_time_pattern" in self.source:
            self.script.source.refuse(
                top.at, "ROW_NUMBER of records needs an arrival without source.arrival_time_pattern"
            )
        arrival = str(self.source["arrival_time"])
        if self.source.get("columns", {}).get(arrival) in ("bigint", "timestamp"):
            return quote_identifier(arrival)
        kind = {None: "timestamp", "s": "double"}.get(self.source.get("arrival_time_unit"), "bigint")
        return f"cast({arrival} as {kind})"

    def _keeps_last(self, top: ScriptTop) -> bool:
        """Return whether Flink keeps the last one of equal records: the latest record is a deduplication."""
        (first, *others), watermark = top.order, self.relation.table.watermark
        time = exp.Column(this=exp.to_identifier(watermark[0] if watermark else "", quoted=True))
        is_time = isinstance(first.this, exp.Anonymous) and first.this.expressions == [time]
        return top.n == 1 and not others and bool(first.args.get("desc")) and is_time

    def _having(self, node: exp.Expr) -> str:
        text = self._over_result("having").condition(node)
        return f"({text})" if isinstance(node, exp.Or) and len(self.relation.having) > 1 else text

    def _aggregate(self, node: exp.Expr) -> SqlValue:
        """Return an aggregate of Spark SQL with the value and the type that Flink gives it."""
        call = node.this if isinstance(node, exp.Filter) else node
        over = self.over_table()
        suffix = f" filter (where {over.condition(node.expression.this)})" if isinstance(node, exp.Filter) else ""
        name, arguments = call.name.upper(), call.expressions
        if len(arguments) != 1:
            self.script.source.refuse(place_of(node), f"{name} needs one argument")
        argument = arguments[0]
        if name == "COUNT" and isinstance(argument, exp.Star):
            return SqlValue(f"count(*){suffix}", BIGINT)
        distinct = ""
        if isinstance(argument, exp.Distinct):
            if name != "COUNT" or len(argument.expressions) != 1:
                self.script.source.refuse(
                    place_of(node), f"DISTINCT is only possible in COUNT of one expression, got {name}"
                )
            argument, distinct = argument.expressions[0], "distinct "
        value = over.of(argument)
        if name == "COUNT":
            return SqlValue(f"count({distinct}{value.sql}){suffix}", BIGINT)
        if name in ("MIN", "MAX"):
            if value.kind == BOOLEAN:
                self.script.source.refuse(place_of(node), f"{name} of a BOOLEAN is not possible")
            return SqlValue(f"{name.lower()}({value.sql}){suffix}", value.kind)
        if not value.kind.is_number:
            self.script.source.refuse(place_of(node), f"{name} needs a number, got {value.kind}")
        return self._sum(node, value, suffix) if name == "SUM" else self._mean(value, suffix)

    def _sum(self, node: exp.Expr, value: SqlValue, suffix: str) -> SqlValue:
        total = f"sum({value.sql}){suffix}"
        if value.kind.name == "FLOAT":
            self.script.source.refuse(
                place_of(node), "SUM of a FLOAT is not possible", "write SUM(CAST(.. AS DOUBLE))"
            )
        if value.kind.name == "DECIMAL":
            return SqlValue(total, FlinkType("DECIMAL", 38, value.kind.scale))
        if value.kind in (BIGINT, DOUBLE):
            return SqlValue(total, value.kind)
        return SqlValue(f"cast({total} as {value.kind.spark})", value.kind)  # a sum has the type of its argument

    def _mean(self, value: SqlValue, suffix: str) -> SqlValue:
        """Return an average: of whole numbers, it is rounded toward zero; of decimals, it has 6 digits."""
        kind = value.kind
        if kind == DOUBLE:
            return SqlValue(f"avg({value.sql}){suffix}", kind)
        if kind.name == "FLOAT":
            return SqlValue(f"cast(avg({value.sql}){suffix} as float)", kind)
        total, count = f"sum({value.sql}){suffix}", f"count({value.sql}){suffix}"
        if kind.is_integral:
            return SqlValue(f"cast({total} div {count} as {kind.spark})", kind)
        result = FlinkType("DECIMAL", 38, max(6, kind.scale))
        wide = FlinkType("DECIMAL", 38, kind.scale)
        quotient = f"cast({total} as {wide.spark}) / cast({count} as decimal(20, 0))"
        return SqlValue(f"cast({quotient} as {result.spark})", result)

    def _rename_colliding(self) -> None:
        """Check that no result column has the name of a key that is another value."""
        keys = {name for name, _ in self._keys.values()}
        for name in (*self.aggregates, *self.derive_after):
            if name in keys or name in _WINDOW_COLUMNS:
                self.script.source.refuse(self.insert.at, f"two columns of the result have the name {name!r}")


@dataclass
class _JoinTranslation:
    """The translation of an INSERT with a join: each side is a source, and each value is a derived column."""

    rows: ScriptJoin
    left: _Translation
    right: _Translation
    _columns: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))
    _taken: set[str] = field(default_factory=set)

    @property
    def _sides(self) -> tuple[_Translation, _Translation]:
        return self.left, self.right

    def refuse(self, at: int, sentence: str, hint: str = "") -> NoReturn:
        """Raise the error of a part that `[join]` cannot have."""
        self.left.script.source.refuse(at, sentence, hint)

    def to_content(self) -> ScriptedInsert:
        """Return the content of a definition."""
        rows = self.rows
        watermark, own = self._watermarks()
        window = self._window()
        for side in self._sides:
            side.require_unique_names()
            side.source_section([])  # it derives the columns of the time, whose names are taken then
        kept = [self._condition(side) for side in self._sides]
        keys = [self._values(pair) for pair in rows.keys]
        comparisons = [(self._values((one, other)), operator) for one, operator, other in rows.comparisons]
        sink_names = self.left.sink_columns(list(rows.columns))
        values = self._result_values(sink_names)
        key_names = [self._key(pair, number) for number, pair in enumerate(keys, 1)]
        columns: dict[str, str] = {}
        types: dict[str, FlinkType] = {}
        for name, (number, node), (value, kind) in zip(sink_names, rows.columns.values(), values, strict=True):
            columns[name], types[name] = self._column(name, number, node, value, keys, key_names), kind
        conditions = [
            f"{self._add(0, f'left_{place}', pair[0])} {operator} {self._add(1, f'right_{place}', pair[1])}"
            for place, (pair, operator) in enumerate(comparisons, 1)
        ]
        section: dict[str, Any] = {
            "kind": "interval" if rows.bounds else "window",
            "type": rows.join_type,
            "semantics": "flink_sql",
            "left": self._columns[0],
            "right": self._columns[1],
        }
        if not self._columns[0]:
            self._add(0, f"left_{key_names[0]}", keys[0][0])  # a row of [join] has a left column at least
        section |= {"where": " and ".join(conditions)} if conditions else {}
        for name, (bound_ms, is_exclusive) in rows.bounds.items():
            section |= {name: duration_text(bound_ms)} | ({f"{name}_exclusive": True} if is_exclusive else {})
        content: dict[str, Any] = {
            "source": [side.source_section(key_names) | more for side, more in zip(self._sides, own, strict=True)],
            "watermark": watermark,
            "window": window,
            "join": section,
        }
        if any(kept):
            for each, text in zip(content["source"], kept, strict=True):
                each["derive"] = {**each.get("derive", {}), _KEPT: text or "true"}
            content["filter"] = {"where": _KEPT}
        return ScriptedInsert(content, columns, types, tuple(side.topic for side in self._sides))

    def _watermarks(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the section of both sources, and what each source has of its own."""
        sections = [watermark_section(side.script, side.relation.table) for side in self._sides]
        for section, side in zip(sections, self._sides, strict=True):
            for key in ("topology", "emit"):
                if key in section:
                    self.refuse(
                        side.relation.table.at,
                        f"{key} = {section[key]!r} of the watermark is not possible in a join",
                    )
        intervals = [section.pop("emit_interval", None) for section in sections]
        shared = {"emit_interval": intervals[0]} if intervals[0] else {}
        if sections[0] == sections[1]:
            return {**sections[0], **shared}, [{}, {}]
        return shared, [{"watermark": section} for section in sections]

    def _window(self) -> dict[str, str]:
        """Return the windows of the rows: those of the join, or days."""
        if self.rows.bounds:
            return {"kind": "tumbling", "size": "1d"}
        windows = [side.window_section() for side in self._sides]
        if windows[0] != windows[1] or "time_zone" in windows[0]:
            self.refuse(self.rows.at, "a join of windows in local time is not possible")
        return windows[0]

    def _condition(self, side: _Translation) -> str:
        texts = [side.over_table().condition(each) for each in side.relation.conditions]
        return "coalesce(" + " and ".join(f"({text})" for text in texts) + ", false)" if texts else ""

    def _values(self, pair: tuple[exp.Expr, exp.Expr]) -> tuple[SqlValue, SqlValue]:
        """Return a left and a right expression that are compared, with one type."""
        left, right = (side.over_table().of(each) for side, each in zip(self._sides, pair, strict=True))
        if left.kind == right.kind and left.kind.spark and not left.kind.is_floating:
            return left, right
        if left.kind.is_integral and right.kind.is_integral:
            return tuple(SqlValue(f"cast({each.sql} as bigint)", BIGINT) for each in (left, right))  # type: ignore[return-value]
        return self.refuse(
            place_of(pair[0]),
            f"a comparison of {left.kind} with {right.kind} is not possible in a join",
            "write a CAST",
        )

    def _result_values(self, names: Sequence[str]) -> list[tuple[SqlValue | None, FlinkType]]:
        """Return the value of each column of the sink; None for a bound of the window."""
        sink = self.left.script.tables.get(self.left.insert.sink)
        found: list[tuple[SqlValue | None, FlinkType]] = []
        for name, (number, node) in zip(names, self.rows.columns.values(), strict=True):
            if node.find(exp.Placeholder):
                is_kept = self.rows.join_type in ("inner", ("left", "right")[number])
                if not isinstance(node, exp.Placeholder) or node.name not in _WINDOW_COLUMNS or not is_kept:
                    self.refuse(
                        place_of(node),
                        "only window_start and window_end are possible here, and of a side that is never null",
                    )
                found.append((None, TIMESTAMP))
                continue
            side = self._sides[number]
            declared = sink.columns[name].kind if sink and name in sink.columns else None
            value = side.as_declared(node, side.over_table().of(node), declared)
            if value.kind.spark is None:
                self.refuse(place_of(node), f"the type {value.kind} is not possible in a join")
            found.append((value, declared or value.kind))
        return found

    def _column(
        self,
        name: str,
        number: int,
        node: exp.Expr,
        value: SqlValue | None,
        keys: Sequence[tuple[SqlValue, SqlValue]],
        key_names: Sequence[str],
    ) -> str:
        """Return the column of the result for one of the sink."""
        if value is None:
            return node.name
        if self.rows.join_type in ("inner", ("left", "right")[number]):
            for pair, key_name in zip(keys, key_names, strict=True):
                if pair[number] == value:
                    return key_name
        return self._add(number, snake_name(name), value)

    def _add(self, number: int, wanted: str, value: SqlValue) -> str:
        """Return the column of a side with a value."""
        name = self._place(wanted, {number: value.sql})
        self._columns[number][name] = value.kind.spark or "string"
        return name

    def _key(self, pair: tuple[SqlValue, SqlValue], number: int) -> str:
        """Return the name of a key, which both sides have."""
        own = pair[0].sql.strip("`")
        wanted = snake_name(own) if own.isidentifier() else f"key_{number}"
        return self._place(wanted, {side: each.sql for side, each in enumerate(pair)})

    def _place(self, wanted: str, values: Mapping[int, str]) -> str:
        """Return a name that no other column of either side has, with which these sides derive their value."""
        name, count = wanted, 2
        while not self._is_free(name, values):
            name, count = f"{wanted}_{count}", count + 1
        self._taken.add(name)
        for number, text in values.items():
            self._sides[number].derive.setdefault(name, text)
        return name

    def _is_free(self, name: str, values: Mapping[int, str]) -> bool:
        """Return whether a name is new, or that of the derived column that is the value."""
        if name in self._taken or name in _RESERVED:
            return False
        for number, side in enumerate(self._sides):
            files = {*map(str.lower, side.source.get("columns", {})), (side.value or "").lower()}
            files |= set() if side.value else {each.lower() for each in side.relation.table.columns}
            if name in side.derive and values.get(number) == quote_identifier(name):
                continue
            if name in side.derive or name in files:
                return False
        return True


def _type_name(kind: FlinkType) -> str:
    """Return the name of a type as `ResultTypes` has it."""
    return (kind.spark or "string").replace(" ", "")


def _type_in_files(kind: FlinkType) -> str:
    """Return the type with which a value is read from a text format."""
    if kind.name == "ROW":
        fields = ", ".join(f"{quote_identifier(name)}: {_type_in_files(each)}" for name, each in kind.fields)
        return f"struct<{fields}>"
    if kind.is_text_in_files or kind.spark is None:
        return "string"
    return kind.spark
