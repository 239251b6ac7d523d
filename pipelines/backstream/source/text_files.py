"""Recognize compressed text files that Spark cannot read, and read the headers of CSV files.

Spark chooses a codec by the suffix. A file that is not BZip2 has no lines for it, so the first bytes of such files
are compared before. Spark also assigns the declared columns of CSV by their position and not by name, so the
headers are read here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

import pyarrow as pa

from backstream.definition.source_section import Source
from backstream.source.archive.files import open_text
from backstream.source.archive.sampled import shown_text
from backstream.source.files import read_error_text
from backstream.source.header_names import name_header
from backstream.source.raw_files import TEXT_FORMATS, reason_unchecked
from backstream.source.reader import UnreadableError


def require_known_compressions(source: Source, paths: Iterable[str]) -> None:
    """Check that Spark can decompress the local text files of a source, as far as their first bytes show it.

    Raises:
        UnreadableError: with the first file that it cannot decompress.
    """
    if source.format not in TEXT_FORMATS:
        return
    for path in paths:
        if reason := _find_reason(path):
            raise UnreadableError(path, reason)


def _find_reason(path: str) -> str | None:
    """Return why a file cannot be read; None if nothing is known against it, or it does not exist."""
    if reason := reason_unchecked(path):
        return reason
    if Path(path).suffix.lower() != ".bz2":
        return None
    head = _read_head(path)
    return None if head.startswith(b"BZh") or not head else "not a BZip2 file"


def _read_head(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(10)
    except FileNotFoundError:
        return b""


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
        UnreadableError: when a file is damaged, compressed in another way than its suffix, or has another header.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        if header := _read_header(path, source.options):
            _require_known_name(path, header, source.columns)
            _require_unique_names(path, header, source.columns)
            groups.setdefault(header, []).append(path)
    return [(_columns_in_order(header, source.columns), files) for header, files in groups.items()]


def _read_header(path: str, options: Mapping[str, str]) -> tuple[str, ...]:
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    try:
        with TextIOWrapper(open_text(path), encoding="utf-8-sig", errors="replace", newline="") as text:
            rows = csv.reader(text, delimiter=separator, quotechar=options.get("quote", '"') or '"')
            comment = options.get("comment") or "\0"
            return tuple(next((row for row in rows if row and not row[0].startswith(comment)), []))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(path, read_error_text(error)) from None


def _columns_in_order(header: Sequence[str], declared: Mapping[str, str]) -> dict[str, str]:
    """Return the types of columns by their names; empty and repeated names become those that Spark gives."""
    by_name = {name.lower(): (name, kind) for name, kind in declared.items()}
    return dict(by_name.get(name.lower(), (name, _OTHER)) for name in name_header(header))


def _require_known_name(path: str, header: Sequence[str], declared: Iterable[str]) -> None:
    """Check that a header has a declared column: a file without a header would lose its first record.

    Raises:
        UnreadableError: with the first line.
    """
    known = {name.lower() for name in declared}
    if known.isdisjoint(name.lower() for name in name_header(header)):
        reason = (
            f"its first line has no name of a column in source.columns: {shown_text(','.join(header))!r}; "
            "add the line with the names"
        )
        raise UnreadableError(path, reason)


def _require_unique_names(path: str, header: Sequence[str], declared: Iterable[str]) -> None:
    """Check that a header has no declared column twice: nobody knows which one is meant.

    Raises:
        UnreadableError: with the names that Spark gives to repeated columns.
    """
    names = [name.strip().lower() for name in header]
    for name in declared:
        if names.count(name.lower()) > 1:
            positions = [position for position, each in enumerate(names) if each == name.lower()]
            others = " and ".join(f"{name}{position}" for position in positions)
            reason = (
                f"its header has the column {name!r} {len(positions)} times: declare {others} in source.columns"
            )
            raise UnreadableError(path, reason)
