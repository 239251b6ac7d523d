"""Read the headers of CSV files, because Spark assigns declared columns by position, not by name."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from io import TextIOWrapper

import pyarrow as pa

from backstream.definition.source_section import Source
from backstream.source.archive.files import open_text
from backstream.source.files import read_error_text
from backstream.source.reader import UnreadableError

_OTHER = "string"
"""Type of a column that the definition does not declare."""


def has_header(source: Source) -> bool:
    """Return whether the source is CSV with the names of the columns in the first line of each file."""
    return source.format == "csv" and source.options.get("header", "").lower() == "true"


def group_by_header(source: Source, paths: Iterable[str]) -> list[tuple[dict[str, str], list[str]]]:
    """Return groups of files with the same header, each with the types of its columns in their order.

    Names are compared without regard to case, as Spark does. A declared column that a file lacks is left out.
    A file without a line is in no group.

    Raises:
        UnreadableError: when a file is damaged, or compressed in another way than its suffix says.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        if header := _read_header(path, source.options):
            groups.setdefault(header, []).append(path)
    return [(_columns_in_order(header, source.columns), files) for header, files in groups.items()]


def _read_header(path: str, options: Mapping[str, str]) -> tuple[str, ...]:
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    try:
        with TextIOWrapper(open_text(path), encoding="utf-8-sig", errors="replace", newline="") as text:
            rows = csv.reader(text, delimiter=separator, quotechar=options.get("quote", '"') or '"')
            return tuple(next((row for row in rows if row), []))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(path, read_error_text(error)) from None


def _columns_in_order(header: Iterable[str], declared: Mapping[str, str]) -> dict[str, str]:
    by_name = {name.lower(): (name, kind) for name, kind in declared.items()}
    return dict(by_name.get(name.strip().lower(), (name, _OTHER)) for name in header)
