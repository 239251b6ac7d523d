"""Find the values of columns in the names of folders, such as `dt=2024-03-01`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from itertools import dropwhile
from pathlib import Path

import pyarrow as pa

from backstream.native.preparation.kinds import INTEGERS, STRING

FOLDER_KINDS = {**INTEGERS, STRING: pa.string(), "date": pa.date32()}
"""The types of a folder's column that the native reader supports."""
FolderValue = int | str | date | None
_COLUMN = re.compile(r"([a-z_]\w*)=([^%]+)", re.ASCII | re.IGNORECASE)
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def find_folder_texts(paths: Iterable[str], root: str) -> dict[str, dict[str, str]] | None:
    """Return the text of each folder's column by file; None if only Spark can find them.

    Args:
        paths: the files.
        root: the folder of the source; names above it have no meaning.
    """
    texts: dict[str, dict[str, str]] = {}
    layouts = set[tuple[tuple[str, ...], tuple[str, ...]]]()
    for path in paths:
        if not Path(path).is_relative_to(root):
            return None
        parts = Path(path).relative_to(root).parts[:-1]
        inner = tuple(dropwhile(lambda part: "=" not in part, parts))
        columns = [(match[1], match[2]) for part in inner if (match := _COLUMN.fullmatch(part))]
        names = tuple(name for name, _ in columns)
        if len(columns) < len(inner) or len({name.lower() for name in names}) < len(names):
            return None
        texts[path] = dict(columns)
        # Without columns, the folders above them have no meaning.
        layouts.add((parts[: len(parts) - len(inner)] if names else (), names))
    return texts if len(layouts) <= 1 else None


def parse_folder_values(texts: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, FolderValue] | None:
    """Return the values of the columns of a file's folders; None if one of them has an unusual form."""
    values: dict[str, FolderValue] = {}
    for name, text in texts.items():
        kind = kinds[name]
        try:
            values[name] = None if text == _NO_VALUE else _parse_value(text, kind)
        except ValueError:
            return None
    return values


def _parse_value(text: str, kind: str) -> FolderValue:
    if kind == STRING:
        return text
    form = _DATE if kind == "date" else _INTEGER
    if kind not in FOLDER_KINDS or not form.fullmatch(text):
        raise ValueError(text)
    value: FolderValue = date.fromisoformat(text) if kind == "date" else int(text)
    pa.scalar(value, FOLDER_KINDS[kind])  # raises an error that is a ValueError, if the number is too large
    return value
