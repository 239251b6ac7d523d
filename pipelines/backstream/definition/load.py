"""Reading definitions: TOML in, a validated model out, every finding with file, key and value."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from backstream.core.errors import SpecError, problems
from backstream.core.folders import HOME_VARIABLE, Home
from backstream.definition.model import Definition


def load(path: Path) -> Definition:
    """The definition in a TOML file.

    Raises:
        SpecError: when there is no such file, it is no TOML, or a key or value in it is wrong.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        msg = f"no definition at {path}"
        raise SpecError(msg) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"definition is not TOML: {error} ({path})"
        raise SpecError(msg) from error
    return parse(content, str(path))


def parse(content: Mapping[str, Any], where: str) -> Definition:
    """The definition in a mapping, as TOML or a plan holds it.

    Raises:
        SpecError: naming each wrong key with its value, and `where` it was written.
    """
    try:
        return Definition.model_validate(content)
    except ValidationError as error:
        raise SpecError(problems("problems", [_finding(each) for each in error.errors()], where)) from None


def resolved(definition: Definition, home: Home) -> Definition:
    """The definition with `${NAME}` in its paths filled in from the environment; `BACKSTREAM_HOME` is the home.

    Raises:
        SpecError: when a variable is not set.
    """
    values = os.environ | {HOME_VARIABLE: str(home.path)}

    def filled(path: str, key: str) -> str:
        try:
            return Template(path).substitute(values)
        except (KeyError, ValueError) as error:
            msg = f"{key} names a variable that is not set: {error} in {path!r} ({definition.name})"
            raise SpecError(msg) from None

    source = definition.source.model_copy(update={"path": filled(definition.source.path, "source.path")})
    quality = definition.quality
    if quality.expected:
        expected_path = filled(quality.expected.path, "quality.expected.path")
        expected = quality.expected.model_copy(update={"path": expected_path})
        quality = quality.model_copy(update={"expected": expected})
    return definition.model_copy(update={"source": source, "quality": quality})


def json_schema() -> str:
    """JSON schema of a definition, for editors."""
    return json.dumps(Definition.model_json_schema(mode="validation"), indent=2)


_SENTENCES = {
    "missing": "is missing",
    "extra_forbidden": "is not a known key",
    "union_tag_not_found": "needs a kind: tumbling or sliding",
}


def _finding(error: ErrorDetails) -> str:
    """One line: the key, the rule, the value."""
    kinds = {"tumbling", "sliding"}
    key = ".".join(str(part) for part in error["loc"] if part not in kinds) or "definition"
    if error["type"] in _SENTENCES:
        return f"{key} {_SENTENCES[error['type']]}"
    if error["type"] == "union_tag_invalid":
        return f"{key}.kind must be tumbling or sliding, got {error['ctx']['tag']!r}"
    if error["type"] == "value_error":
        sentence = str(error["ctx"]["error"])
        return sentence if key == "definition" else f"{key} {sentence}"
    expected = error["msg"].replace("Input should be ", "must be ").replace("String should", "must").rstrip(".")
    return f"{key} {expected[0].lower()}{expected[1:]}, got {error['input']!r}"
