"""Refuse raw files that the reader of an older Spark cannot read, before it fails with an error of Java."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyarrow import orc

from backstream.definition.source_section import Source
from backstream.errors import SpecError
from backstream.installed_spark import find_older_spark
from backstream.source.raw_files import TEXT_FORMATS

_ZSTD_SINCE, _ORC_INSTANTS_SINCE = "4.1", "4.2"
"""The versions of Spark that read these first: text with the suffix `.zst`, and instants in ORC files."""


def require_spark_reader(source: Source, paths: Iterable[str], where: str) -> None:
    """Check that the installed Spark reads the compression of text files, and the types of ORC files.

    Raises:
        SpecError: naming the first file that needs a newer Spark.
    """
    problem = None
    if source.format in TEXT_FORMATS and (version := find_older_spark(_ZSTD_SINCE)):
        zstd = (path for path in paths if path.lower().endswith(".zst"))
        problem = next((f"read text with the suffix .zst, such as {path}" for path in zstd), None)
    elif source.format == "orc" and (version := find_older_spark(_ORC_INSTANTS_SINCE)):
        columns = ((name, path) for path in paths if (name := _find_instants(path)))
        kind = "timestamp with local time zone"
        problem = next((f"read the column {name} of {path}: its type is {kind}" for name, path in columns), None)
    if problem:
        since = _ZSTD_SINCE if source.format in TEXT_FORMATS else _ORC_INSTANTS_SINCE
        hint = f"install Spark {since} or newer, or write other files"
        msg = f"Spark {version} cannot {problem} ({where})\n\nhint: {hint}"
        raise SpecError(msg)


def _find_instants(path: str) -> str | None:
    """Return the first column of an ORC file with instants; None if there is none, or the file is damaged."""
    try:
        schema = orc.ORCFile(path).schema
    except (OSError, pa.ArrowInvalid):
        return None  # the reader of Spark names the damage
    return next((field.name for field in schema if "tz=" in str(field.type)), None)
