"""Describe several sources of a definition as one source of prepared files.

Each source is prepared by its own settings. The prepared files of all sources have the same columns, and one of
them has the name of the source and its partition. So both engines read one source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backstream.definition import prepared_columns
from backstream.definition.source_section import SHARED_KEYS


def with_united_source(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a definition with one source in place of a list of sources; other content as it is."""
    parts = content.get("source")
    if not isinstance(parts, list) or not parts:
        return content
    tables = [part for part in parts if isinstance(part, Mapping)]
    first = tables[0] if tables else {}
    united = {
        "path": [path for part in tables for path in _list_paths(part)] or "prepared",
        "event_time": prepared_columns.EVENT_TIME,
        "partition": prepared_columns.PARTITION,
        **{key: first[key] for key in SHARED_KEYS if key in first},
        "parts": parts,
    }
    if all(part.get("arrival_time") for part in tables):
        united["arrival_time"] = prepared_columns.ARRIVAL_TIME
    if any(part.get("sequence") for part in tables):
        united["sequence"] = prepared_columns.SEQUENCE
    return {**content, "source": united}


def _list_paths(part: Mapping[str, Any]) -> Iterator[str]:
    path = part.get("path")
    yield from (each for each in (path if isinstance(path, list) else [path]) if isinstance(each, str))
