"""Read Avro files without Spark. Over damaged bytes, fastavro raises anything, such as `MemoryError`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backstream.errors import PlanError

_CODECS = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")
"""Compressions that both Spark and fastavro read."""
_NANOSECONDS = "timestamp-nanos"
"""Part of the names of two types that Spark does not read, unless a setting of the session allows it."""
_MISSING_LIBRARY = "you need to install one of the following libraries"
"""Part of the message of fastavro."""


class DamagedAvroError(ValueError):
    """The content is not Avro, or it is damaged."""


def load_avro_schema(stream: Any, path: str) -> Any:
    """Return the schema in the header of a file.

    Args:
        stream: the open file.
        path: its path, for messages.

    Raises:
        DamagedAvroError: when the header is damaged, or Spark cannot read the compression.
    """
    return _open(stream, path).writer_schema


def read_avro(stream: Any, path: str) -> Iterator[Any]:
    """Yield the values of a file.

    Args:
        stream: the open file.
        path: its path, for messages.

    Raises:
        DamagedAvroError: when the file is damaged, or Spark cannot read the compression.
        PlanError: when the library of the compression is missing.
    """
    reader = _open(stream, path)
    with _explain_damage("its records are damaged", path):
        yield from reader


def _open(stream: Any, path: str) -> Any:
    import fastavro

    with _explain_damage("its header is damaged", path):
        reader = fastavro.reader(stream)
    if reader.codec not in _CODECS:
        msg = f"Spark cannot read its compression {reader.codec!r}: write it with deflate or zstandard"
        raise DamagedAvroError(msg)
    if _NANOSECONDS in json.dumps(reader.writer_schema):
        msg = f"Spark cannot read its type {_NANOSECONDS}: write it with timestamp-micros"
        raise DamagedAvroError(msg)
    return reader


@contextmanager
def _explain_damage(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - see the head of this module
        text = str(error).partition("\n")[0]
        if _MISSING_LIBRARY in text:
            codec = text.partition(" ")[0]
            msg = (
                f"cannot read {path}: its records are compressed with {codec}, and the Python library for it is"
                ' missing\n\nhint: pip install "fastavro[snappy,zstandard]"'
            )
            raise PlanError(msg) from None
        msg = f"{what}: {text}" if text else what
        raise DamagedAvroError(msg) from None
