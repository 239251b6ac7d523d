"""Load definitions from TOML, replace `${NAME}`, apply overrides, and name file, line, and key of each error."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from backstream.definition.folder import find_definition
from backstream.definition.join_section import with_join
from backstream.definition.model import Definition
from backstream.definition.prepared import as_copied, as_prepared, is_copied, is_prepared, with_united_source
from backstream.definition.source_section import SideInput, Source
from backstream.definition.values import DURATION_PATTERN
from backstream.definition.watermark_sections import DELAYED
from backstream.errors import PlanError, SpecError, format_problems
from backstream.eventtime.instants import duration_text
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.runs.settings import fill_references, project_environment
from backstream.storage.stores import is_in_store
from backstream.text import describe_differences
from backstream.variables import HOME_VARIABLE

if TYPE_CHECKING:
    from backstream.definition.flink_sql.script import ScriptText

_PATH = "path"
"""The key whose variables a run replaces, because `${BACKSTREAM_HOME}` is the home of the run."""


def load_definition(definition: Path | str) -> Definition:
    """Return the definition in a TOML file.

    Args:
        definition: the file; as text also the name of a definition in the definitions folder.

    Raises:
        SpecError: when the file does not exist or is not TOML, or a key or value is invalid.
    """
    path = find_definition(definition) if isinstance(definition, str) else definition
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        msg = f"no definition at {path}"
        raise SpecError(msg) from None
    except OSError as error:
        msg = f"cannot read the definition at {path}: {error.strerror}"
        raise SpecError(msg) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"definition is not TOML: {error} ({path})"
        raise SpecError(msg) from error
    filled = _fill_values(content, project_environment(path.parent), str(path))
    return parse_definition(_expand_script(filled, path), str(path))


def _expand_script(content: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return the content of a definition with what the script of `[flink_sql]` gives; other content as it is."""
    section = content.get("flink_sql")
    if not isinstance(section, Mapping) or not isinstance(section.get("script"), str):
        return content
    from backstream.definition.flink_sql.translation import expand_script  # its parser takes long to import

    return expand_script(content, read_script_text(path.parent / section["script"]), str(path)).content


def read_script_text(path: Path) -> ScriptText:
    """Return the text of a Flink SQL script.

    Raises:
        SpecError: when there is no such file, or it is not text.
    """
    from backstream.definition.flink_sql.script import ScriptText

    try:
        return ScriptText(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        msg = f"cannot read the Flink SQL script at {path}: {reason}"
        raise SpecError(msg) from None


def parse_definition(content: Mapping[str, Any], where: str) -> Definition:
    """Return the definition in a mapping, as from TOML or from a plan.

    Raises:
        SpecError: with the key and the value of each error, and the location `where`.
    """
    try:
        return Definition.model_validate(with_united_source(with_join(content)))
    except ValidationError as error:
        lines = dict.fromkeys(_error_text(details) for details in error.errors())
        raise SpecError(format_problems("problems", [*lines], where)) from None


def resolve_paths(definition: Definition, home: Home) -> Definition:
    """Return the definition with absolute paths, and with its prepared files as the source if it has some.

    See `resolve_raw_paths`.
    """
    resolved = resolve_raw_paths(definition, home)
    if is_copied(resolved, home):
        return as_copied(resolved, home)
    return as_prepared(resolved, home) if is_prepared(resolved, home) else resolved


def resolve_raw_paths(definition: Definition, home: Home) -> Definition:
    """Return the definition with absolute paths, and with `${NAME}` in paths replaced by environment variables.

    `${BACKSTREAM_HOME}` is the path or address of `home`. Paths must be absolute, because jobs run in other
    working folders.

    Raises:
        SpecError: when a variable is not set.
    """
    values = os.environ | {HOME_VARIABLE: home.location}

    def resolve(path: str, key: str, *, is_table: bool = False) -> str:
        try:
            filled = Template(path).substitute(values)
        except KeyError as error:
            msg = f"{key} has a variable that is not set: {error} in {path!r} ({definition.name})"
            raise SpecError(msg) from None
        except ValueError:
            msg = f"{key} has a $ without {{NAME}}: {path!r} ({definition.name})\n\nhint: write $$ for a $"
            raise SpecError(msg) from None
        is_local = not is_in_store(filled) and not is_table
        return str(Path(filled.removeprefix("file://")).resolve()) if is_local else filled

    def resolve_source(source: Source, key: str) -> Source:
        paths = tuple(resolve(path, f"{key}.path", is_table=source.format == "iceberg") for path in source.paths)
        path = paths[0] if isinstance(source.path, str) else paths
        parts = tuple(resolve_source(part, f"{key}.{number}") for number, part in enumerate(source.parts))
        return source.model_copy(update={"path": path, "parts": parts})

    def resolve_side(side: SideInput, key: str) -> SideInput:
        paths = tuple(resolve(path, f"{key}.path", is_table=side.format == "iceberg") for path in side.paths)
        return side.model_copy(update={"path": paths[0] if isinstance(side.path, str) else paths})

    source = resolve_source(definition.source, "source")
    sides = {name: resolve_side(side, f"inputs.{name}") for name, side in definition.inputs.items()}
    quality = definition.quality
    if quality.expected:
        expected_path = resolve(quality.expected.path, "quality.expected.path")
        expected = quality.expected.model_copy(update={"path": expected_path})
        quality = quality.model_copy(update={"expected": expected})
    logs = {
        key: tuple(resolve(path, f"watermark.{key}") for path in getattr(definition.watermark, key))
        for key in ("checkpoint", "progress", "event_log")
    }
    watermark = definition.watermark.model_copy(update=logs)
    return definition.model_copy(
        update={"source": source, "quality": quality, "inputs": sides, "watermark": watermark}
    )


def json_schema() -> str:
    """Return the JSON schema of definitions, for editors."""
    schema = Definition.model_json_schema(mode="validation")
    for section in schema["$defs"].values():
        for key in section.get("properties", {}).values():
            if key.get("pattern") == DURATION_PATTERN and "default" in key:
                key["default"] = duration_text(key["default"])
    source = schema["properties"]["source"]
    one = {"$ref": source.pop("$ref")}
    source["anyOf"] = [one, {"type": "array", "items": one, "minItems": 1}]
    return json.dumps(schema, indent=2)


_WINDOW_KINDS = "tumbling, sliding, session or cumulate"
_SENTENCES = {
    "missing": "is missing",
    "extra_forbidden": "is not a known key",
    "union_tag_not_found": f"needs a kind: {_WINDOW_KINDS}",
    "too_short": "must have at least one",
}
_RULES = {
    "dict_type": "be a table",
    "model_type": "be a table",
    "model_attributes_type": "be a table",
    "tuple_type": "be a list",
    "string_type": "be text",
    "float_type": "be a number",
    "float_parsing": "be a number",
    "string_pattern_mismatch": "be lower-case words, joined by single underscores",
}
_PATH_CHOICES = {("path", "str"), ("path", "tuple[str, ...]")}
"""Ends of pydantic's error locations for a path that is neither text nor a list of texts."""
_KINDS = ("tumbling", "sliding", "session", "cumulate")
_CHOICES = {(*section, kind) for section in (("window",), ("join", "window")) for kind in _KINDS} | {
    ("source", "parts")
}
"""Starts of pydantic's error locations whose last part is no key: the kind of a window, and several sources."""


def _error_text(error: ErrorDetails) -> str:
    """Return one line with the key, the rule, and the value."""
    key = _key_of(error["loc"]) or "definition"
    if sentence := _SENTENCES.get(error["type"]):
        return f"{key} {sentence}"
    if error["type"] == "union_tag_invalid":
        return f"{key}.kind must be {_WINDOW_KINDS}, got {error['ctx']['tag']!r}"
    if error["type"] == "value_error":
        sentence = str(error["ctx"]["error"])
        return sentence if key == "definition" else f"{key} {sentence}"
    if error["type"] in _RULES and error["loc"][-2:] in _PATH_CHOICES:
        return f"{key} must be text or a list of texts, got {error['input']!r}"
    if error["type"] in _RULES:
        return f"{key} must {_RULES[error['type']]}, got {error['input']!r}"
    expected = error["msg"].replace("Input should be ", "must be ").replace("String should", "must").rstrip(".")
    return f"{key} {expected[0].lower()}{expected[1:]}, got {error['input']!r}"


def _key_of(location: tuple[int | str, ...]) -> str:
    """Return the key at pydantic's location of an error, without the parts that name a choice of a type."""
    parts = [
        part
        for index, part in enumerate(location)
        if location[: index + 1] not in _CHOICES
        and location[index - 1 : index + 1] not in _PATH_CHOICES
        and part != "[key]"  # which follows the name of an invalid key
    ]
    return ".".join(map(str, parts))


OVERRIDABLE = (
    "watermark.delay",
    "watermark.idle_timeout",
    "lateness.allowed",
    "backfill.chunk",
    "approval.when",
)
"""Keys that a run can override; other keys would define another dataset."""


OVERRIDE_FIELDS = {
    "delay": "watermark.delay",
    "idle_timeout": "watermark.idle_timeout",
    "allowed_lateness": "lateness.allowed",
    "chunk": "backfill.chunk",
    "approval": "approval.when",
}
"""The keys that the fields of a form override."""


def find_override_problems(definition: Definition, values: Mapping[str, str], mode: Mode) -> dict[str, str]:
    """Return the error of each form field whose value cannot override the definition in this mode."""
    problems = {}
    for field, value in values.items():
        try:
            apply_overrides(definition, {OVERRIDE_FIELDS[field]: value}, mode)
        except SpecError as error:
            problems[field] = str(error)
    return problems


def reason_against_mode(definition: Definition, mode: Mode) -> str | None:
    """Return the reason why no run of the definition can have a mode; None if a run can."""
    has_arrival = definition.source.arrival_time is not None or bool(definition.watermark.job_logs)
    if mode is Mode.REPLAY and not has_arrival:
        return "source.arrival_time is missing, so the arrival order is unknown"
    return None


def apply_overrides(definition: Definition, overrides: Mapping[str, str], mode: Mode) -> Definition:
    """Return the definition with the values of some keys replaced.

    Args:
        definition: definition from its file.
        overrides: map from dotted keys in `OVERRIDABLE` to values as in TOML, e.g., `1h`.
        mode: mode of the run; a recompute has no watermarks to override.

    Raises:
        SpecError: when a key cannot be overridden or has no meaning in this run, or a value is invalid.
    """
    for key in overrides:
        if problem := _override_problem(definition, key, mode):
            msg = f"{key} {problem}, got {overrides[key]!r} (overrides of {definition.name})"
            raise SpecError(msg)
    content: dict[str, Any] = definition.model_dump(mode="json")
    for key, value in overrides.items():
        section, _, name = key.partition(".")
        content[section] = content[section] | {name: value}
    return parse_definition(content, f"overrides of {definition.name}")


def _override_problem(definition: Definition, key: str, mode: Mode) -> str | None:
    """Return the reason why a key cannot be overridden; None if it can."""
    if key not in OVERRIDABLE:
        return f"cannot be overridden, only {', '.join(OVERRIDABLE)} can"
    if mode is Mode.RECOMPUTE and key.startswith(("watermark.", "lateness.")):
        return "has no meaning with the mode recompute, in which nothing is late"
    strategy = definition.watermark.strategy
    if key == "watermark.delay" and strategy not in DELAYED:
        return f"has no meaning with strategy = {strategy.value!r}"
    if key.startswith("watermark.") and definition.source.parts:
        return "cannot be overridden with several sources: change the definition"
    return None


_MAX_CHANGES_SHOWN = 10


def require_unchanged_definition(plan: Plan) -> None:
    """Check that the definition has not changed since planning.

    A removed file is no change, because the plan contains the whole definition.

    Raises:
        PlanError: with each changed key.
        SpecError: when the file is not a valid definition.
    """
    path = Path(plan.definition_path)
    if not path.is_file():
        return
    definition = load_definition(path)
    if definition.definition_hash == plan.definition_hash:
        return
    overridden = apply_overrides(definition, plan.overrides, plan.mode)
    current = resolve_paths(overridden, plan.home).model_dump(mode="json")
    if changed := describe_differences(plan.definition, current):
        more = len(changed) - _MAX_CHANGES_SHOWN
        listed = "".join(f"\n  {line}" for line in changed[:_MAX_CHANGES_SHOWN]) + (
            f"\n  and {more} more" if more > 0 else ""
        )
        msg = (
            f"cannot run {plan.run_id}: the definition changed since it was planned ({path}){listed}"
            "\n\nhint: create a new plan for the range, or undo the change"
        )
        raise PlanError(msg)


def require_unchanged_code(plan: Plan) -> None:
    """Check that the code of the user has not changed since planning.

    Raises:
        PlanError: with the class or function whose package changed.
        SpecError: when its package no longer exists.
    """
    for code in parse_definition(plan.definition, f"plan {plan.run_id}").user_code:
        planned = plan.code.get(code.target)
        if planned is not None and (current := code.source_hash()) != planned:
            msg = (
                f"cannot run {plan.run_id}: the code of the {code} changed since it was planned\n"
                f"  hash of package {code.package}: {planned} -> {current}\n\n"
                "hint: create a new plan for the range, or undo the change"
            )
            raise PlanError(msg)


def _fill_values(content: Mapping[str, Any], variables: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return the content of a definition with each `${NAME}` in a text replaced, except in paths.

    Args:
        content: content of the TOML file.
        variables: values by name.
        where: location for messages.

    Raises:
        SpecError: with the key and the value, when a variable is not set.
    """
    return {key: _fill(value, key, variables, where) for key, value in content.items()}


def _fill(value: Any, key: str, variables: Mapping[str, str], where: str) -> Any:
    if isinstance(value, str):
        return fill_references(value, variables, f"{where}, {key}")
    if isinstance(value, list):
        return [_fill(item, key, variables, where) for item in value]
    if isinstance(value, Mapping):
        return {
            name: item if name == _PATH else _fill(item, f"{key}.{name}", variables, where)
            for name, item in value.items()
        }
    return value
