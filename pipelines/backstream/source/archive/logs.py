"""Read a sample of a log by the columns of its format."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from itertools import chain, islice

from backstream.errors import PlanError
from backstream.source.archive.encodings import is_decoded, open_decoded
from backstream.source.archive.files import Archive, ArchiveFile
from backstream.source.archive.log_formats import layout_of_log
from backstream.source.archive.sampled import Record, Sample

_SEEN_LINES = 1_000
"""The layout of a log depends on this number of its first lines."""


def read_log(archive: Archive, file: ArchiveFile, sample: Sample) -> Iterator[Record]:
    """Yield the records of a log.

    Raises:
        PlanError: when a file has other columns than the first one.
    """
    with open_decoded(archive.open(file), sample.encoding) as text:
        lines = (line.rstrip("\n") for line in text)
        seen = list(islice(lines, _SEEN_LINES))
        layout = layout_of_log(archive.format, [line for line in seen if is_decoded(line)])
        header = seen[0] if "header" in layout.options else None
        columns = layout.columns if header else sample.columns or layout.columns
        if layout.columns != columns and "comment" in layout.options:
            raise _other_columns_error(file, columns, layout.columns)
        sample.columns += tuple(name for name in columns if name not in sample.columns)
        sample.options |= layout.options
        for name, derived in layout.derived.items():
            sample.derived.setdefault(name, derived.sql)
        for at, line in enumerate(chain(seen, lines), 1):
            if "comment" in layout.options and line.startswith(layout.options["comment"]):
                if line.lower().startswith("#fields") and layout_of_log(archive.format, [line]).columns != columns:
                    raise _other_columns_error(file, columns, layout_of_log(archive.format, [line]).columns)
                continue
            if not line.strip() or line == header:
                continue
            row = _cells(line, layout.options)
            if len(row) == len(columns) and is_decoded(line):
                nulls = ("", layout.options.get("nullValue"))
                cells = (None if cell in nulls else cell for cell in row)
                record = dict(zip(columns, cells, strict=True))
                yield record | {name: derived.compute(record) for name, derived in layout.derived.items()}
            else:
                sample.add_unreadable(file.path, at, line)


def _cells(line: str, options: Mapping[str, str]) -> list[str]:
    if not options["quote"]:
        return line.split(options["sep"])
    escape = None if options["escape"] == options["quote"] else options["escape"]
    return next(csv.reader([line], delimiter=options["sep"], quotechar=options["quote"], escapechar=escape), [])


def _other_columns_error(file: ArchiveFile, known: tuple[str, ...], own: tuple[str, ...]) -> PlanError:
    own_only, known_only = [name for name in own if name not in known], [name for name in known if name not in own]
    difference = f"others are {', '.join((*own_only, *known_only)[:10]) or 'their order'}"
    return PlanError(
        f"{file.path} has other #Fields than the lines before (--from): {difference}\n\n"
        "hint: a run reads these columns by position; give --from a path to the files with equal fields"
    )
