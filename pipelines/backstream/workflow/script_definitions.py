"""Write the definitions of the INSERTs of a Flink SQL script, and compare a definition with a script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp

from backstream.definition.flink_sql.script import FlinkScript, ScriptText
from backstream.definition.flink_sql.translation import ScriptedInsert, expand_script, snake_name
from backstream.definition.loader import load_definition, parse_definition, read_script_text
from backstream.definition.model import Definition
from backstream.errors import SpecError
from backstream.source.archive.columns import reader_columns
from backstream.source.archive.evidence import examine_archive
from backstream.text import describe_differences

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TEXT_FORMATS = ("json", "csv")
_EXPECTED_ARCHIVE = {
    "format": "json",
    "arrival_time": "arrival_ms",
    "arrival_time_unit": "ms",
    "partition": "partition",
    "sequence": "offset",
    "columns": {"partition": "int", "offset": "bigint", "arrival_ms": "bigint"},
}
"""The columns of an archive of Kafka records, if no archive is given."""
_COMPARED = ("watermark", "window", "filter", "having", "top")


@dataclass(frozen=True, slots=True)
class NewDefinition:
    """The definition of an INSERT; `problem` is the reason why there is none."""

    name: str
    text: str = ""
    problem: str = ""


def write_script_definitions(path: Path, name: str, archive: str | None) -> list[NewDefinition]:
    """Return a definition for each INSERT of a script, or the reason why it cannot be one.

    Args:
        path: the script.
        name: the name of the dataset; with several INSERTs, it is followed by that of the table.
        archive: the place of the recorded events, whose columns are examined; None: the usual columns.

    Raises:
        SpecError: when the script cannot be read, or has no INSERT.
    """
    script = read_script_text(path)
    sinks = [insert.sink for insert in FlinkScript.read(script).inserts]
    if not sinks:
        msg = f"the script has no INSERT INTO ({path})"
        raise SpecError(msg)
    source = _examined_source(archive) if archive else dict(_EXPECTED_ARCHIVE)
    found = []
    for sink in sinks:
        own = name if len(sinks) == 1 else f"{name}_{snake_name(sink)}"
        section = {"script": path.name, "insert": sink}
        try:
            translated = _expand(own, script, section, source, archive)
            found.append(NewDefinition(own, _definition_text(translated, path.name, archive)))
        except SpecError as error:
            found.append(NewDefinition(own, problem=" ".join(str(error).split("\n\nhint: "))))
    return found


def _expand(
    name: str, script: ScriptText, section: Mapping[str, str], source: Mapping[str, Any], archive: str | None
) -> ScriptedInsert:
    """Return the content of a definition; a column of the archive has Kafka's value, or its fields are columns."""
    values = source.get("values", ["value"] if archive is None else [])
    problems = []
    own = {"path": archive or "archive/*", **{key: each for key, each in source.items() if key != "values"}}
    for value in [*values, None]:
        content = {"name": name, "flink_sql": {**section, **({"value": value} if value else {})}, "source": own}
        if value and "columns" in own:
            content["source"] = {
                **own,
                "columns": {key: each for key, each in own["columns"].items() if key != value},
            }
        try:
            translated = expand_script(content, script, f"{name}.toml")
            parse_definition(translated.content, f"{name}.toml")
        except SpecError as error:
            problems.append(error)
            continue
        return translated
    raise problems[0]


def _examined_source(location: str) -> dict[str, Any]:
    """Return the keys of `[source]` for an archive; `values` are the columns that may have Kafka's value."""
    evidence = examine_archive(location, None)
    source: dict[str, Any] = {"path": evidence.archive.source_path(), "format": evidence.archive.source_format}
    if time := evidence.arrival_time:
        source["arrival_time"] = time.expression
        source |= {"arrival_time_unit": time.unit} if time.unit else {}
        source |= {"arrival_time_pattern": time.pattern} if time.pattern else {}
    for key, choice in (("partition", evidence.roles.partition), ("sequence", evidence.roles.sequence)):
        source |= {key: choice.value} if choice.value else {}
    columns = reader_columns(evidence.columns)
    source["values"] = [name for name, kind in columns.items() if kind.startswith("struct<")]
    if source["format"] in _TEXT_FORMATS:
        used = {source.get(key) for key in ("arrival_time", "partition", "sequence")}
        source["columns"] = {name: kind for name, kind in columns.items() if name in used}
    return source


def _definition_text(translated: ScriptedInsert, script: str, archive: str | None) -> str:
    content = {key: value for key, value in translated.content.items() if key != "flink_sql"}
    lines = [f"# The rows that {script} inserts, by Flink's rules. `backstream check` with --against shows drift."]
    lines += [f"# {sink} of the sink is {column}" for sink, column in translated.columns.items() if sink != column]
    lines += [] if archive else ["# Complete [source]: the path, and the columns of the archive."]
    return "\n".join([*lines, *_toml_lines(content, "")]) + "\n"


def _toml_lines(content: Mapping[str, Any], place: str) -> Iterator[str]:
    tables = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    for key, value in content.items():
        if key not in tables:
            yield f"{_toml_key(key)} = {json.dumps(value, ensure_ascii=False)}"
    for key, table in tables.items():
        name = f"{place}.{_toml_key(key)}" if place else _toml_key(key)
        yield ""
        yield f"[{name}]"
        yield from _toml_lines(table, name)


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key)


def find_script_drift(path: Path, script_path: Path, insert: str | None = None) -> list[str]:
    """Return a line for each key in which a definition differs from a script; empty if they agree.

    Derived columns are put in their places, so that their names don't count.

    Raises:
        SpecError: when the definition or the script cannot be read, or the script cannot be a definition.
    """
    definition, script = load_definition(path), read_script_text(script_path)
    source = definition.source.model_dump(mode="json", exclude_defaults=True)
    kept = ("path", "format", "arrival_time", "arrival_time_unit", "arrival_time_pattern", "partition", "sequence")
    archive = {key: source[key] for key in kept if key in source} | {"format": definition.source.format}
    columns = source.get("columns", {})
    structs = [name for name, kind in columns.items() if kind.lower().startswith("struct<")]
    section = {"script": script_path.name} | ({"insert": insert} if insert else {})
    differences: list[list[str]] = []
    for value in [*structs, None]:
        own = {"columns": {key: kind for key, kind in columns.items() if key != value}} if columns else {}
        content = {
            "name": definition.name,
            "flink_sql": section | ({"value": value} if value else {}),
            "source": {**archive, **own},
        }
        translated = expand_script(content, script, str(path))
        other = parse_definition(translated.content, str(path))
        differences.append(describe_differences(_comparable(definition), _comparable(other)))
    return min(differences, key=len)


def _comparable(definition: Definition) -> dict[str, Any]:
    """Return the values that a script gives, with derived columns in their places."""
    content = definition.model_dump(mode="json", exclude_defaults=True)
    source, derive = definition.source, dict(definition.source.derive)

    def canonical(text: str) -> str:
        return _inline(text, derive)

    compared = {name: content[name] for name in _COMPARED if name in content}
    for name, key in (("filter", "where"), ("having", "condition")):
        if name in compared:
            compared[name] = {key: canonical(compared[name][key])}
    times = ("event_time_unit", "event_time_pattern")
    compared["source"] = {key: str(getattr(source, key)) for key in times if getattr(source, key)}
    compared["source"] |= {"event_time": canonical(source.event_time)}
    compared["source"] |= {"key": {name: canonical(derive.get(name, name)) for name in source.key}}
    compared["aggregates"] = {name: canonical(call) for name, call in definition.aggregates.items()}
    compared["derive_after"] = {name: canonical(call) for name, call in definition.derive_after.items()}
    return compared


def _inline(text: str, derive: Mapping[str, str]) -> str:
    """Return SQL in one spelling, with each derived column as its expression."""

    def place(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and len(node.parts) == 1 and node.name in derive:
            inner = {name: each for name, each in derive.items() if name != node.name}
            found = sqlglot.parse_one(_inline(derive[node.name], inner), dialect="spark")
            return found if isinstance(found, exp.Column | exp.Func) else exp.Paren(this=found)
        return node

    parsed = sqlglot.parse_one(text, dialect="spark")
    for identifier in parsed.find_all(exp.Identifier):
        identifier.set("quoted", None)
    return str(parsed.transform(place).sql(dialect="spark")).lower()


def describe_drift(differences: Sequence[str], script: str) -> list[str]:
    """Return the lines about the drift of a definition from a script."""
    if not differences:
        return [f"against     {script}: no key differs"]
    return [f"against     {script}: {len(differences)} keys differ", *(f"  {line}" for line in differences)]
