"""Describe the checks of the quality gate, from the expectation suites."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backstream.quality.suites import FRAMES, PARAMETERS, list_suites, load_suite
from backstream.runs.home import bundled_folder
from docs.generator.markdown import code, document, prose, table

_INTRODUCTION = """\
Each suite is a JSON file in `expectations`, in the format of Great Expectations. A limit in capitals is a
parameter: a run takes its value from the section `[quality]` of the [definition](definition-keys.md). The last
table lists the parameters."""
_PARAMETERS = """\
A suite refers to a limit by `{"$PARAMETER": "late_ratio_warn"}`. `mostly` is the minimum share of rows that meet
an expectation, so that its parameters are 1 minus the limit."""
_COLUMN = "column"
_PARAMETER = "$PARAMETER"
_COLUMNS_TOGETHER = 10


def page() -> str:
    """Return the page."""
    blocks = [block for name in list_suites() for block in _suite(name)]
    rows = ((code(name), _list_names(columns)) for name, columns in FRAMES.items())
    frames = ["## Frames", "Each check reads one frame of the audit.", table(["frame", "columns"], rows)]
    keys = ((code(name), code(source)) for name, source in PARAMETERS.items())
    parameters = ["## Parameters", _PARAMETERS, table(["parameter", "value from `[quality]`"], keys)]
    return document("Checks", _INTRODUCTION, *blocks, *frames, *parameters)


def _suite(name: str) -> Iterator[str]:
    content = json.loads((bundled_folder("expectations") / f"{name}.json").read_text(encoding="utf-8"))
    included = content.get("meta", {}).get("includes", ())
    yield f"## `{name}`"
    yield prose(content.get("notes"))
    if included:
        yield "Includes the suites " + ", ".join(f"[`{suite}`](#{suite})" for suite in included) + "."
    own = [entry["description"] for entry in content["expectations"]]
    entries = [entry for entry in load_suite(name, is_asked=False).entries if entry.description in own]
    rows = (
        (
            prose(entry.description),
            str(entry.severity.value),
            code(entry.frame),
            _columns(entry.kwargs),
            code(entry.type),
            _limits(entry.kwargs),
        )
        for entry in entries
    )
    yield table(["check", "severity", "frame", "column", "expectation", "limits"], rows)


def _list_names(columns: Sequence[str]) -> str:
    """Return the columns of a frame in groups, because a long list is hard to read."""
    groups = (columns[start : start + _COLUMNS_TOGETHER] for start in range(0, len(columns), _COLUMNS_TOGETHER))
    return "; ".join(", ".join(map(code, group)) for group in groups)


def _columns(arguments: Mapping[str, Any]) -> str:
    names = [name for key, value in arguments.items() if key.startswith(_COLUMN) for name in _listed(value)]
    return ", ".join(map(code, names))


def _limits(arguments: Mapping[str, Any]) -> str:
    limits = {key: value for key, value in arguments.items() if not key.startswith(_COLUMN)}
    return ", ".join(code(f"{key} = {_limit(value)}") for key, value in limits.items())


def _limit(value: object) -> str:
    """Return the value of a limit; a parameter in capitals."""
    return str(value[_PARAMETER]).upper() if isinstance(value, dict) and _PARAMETER in value else json.dumps(value)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
