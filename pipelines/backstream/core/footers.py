"""The footer of a Parquet file as bytes: it names every row group with its rows, sizes and bounds."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_MAGIC = b"PAR1"
_TAIL = 8
"""Bytes at the end: the footer's length (4, little-endian) and the magic word."""


def footer_digest(path: Path) -> str:
    """Return a hash of the footer of a Parquet file; another content of the file has another footer.

    Source: https://parquet.apache.org/docs/file-format/.

    Raises:
        ValueError: when the file has no footer.
        OSError: when it cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _TAIL, 0))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length + _TAIL > size:
            msg = f"no Parquet footer at its end, {size} bytes"
            raise ValueError(msg)
        file.seek(size - _TAIL - length)
        return hashlib.sha256(file.read(length)).hexdigest()[:32]
