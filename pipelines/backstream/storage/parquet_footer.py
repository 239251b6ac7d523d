"""Read the footer of a Parquet file as bytes: it lists every row group with its rows, sizes and bounds."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
"""Number of bytes at the end: the length of the footer (4, little-endian) and the magic word."""
_FIRST_READ_BYTES = 32_768
"""Number of bytes of the first read: most footers are shorter."""


class Stream(Protocol):
    """An open file."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Move to a position, and return it."""

    def read(self) -> bytes:
        """Return the rest of the file."""


@dataclass(frozen=True, slots=True)
class Footer:
    """The end of a Parquet file from its footer on; `size_bytes` is the size of the whole file.

    `content` is sufficient for a reader of metadata, which searches the footer from the end.
    """

    content: bytes
    size_bytes: int

    @classmethod
    def from_file(cls, path: str | Path) -> Footer:
        """Read the footer of a file.

        Source: https://parquet.apache.org/docs/file-format/.

        Raises:
            ValueError: when the file has no footer.
            OSError: when it cannot be read.
        """
        with open(path, "rb") as file:  # noqa: PTH123 - of thousands of files; a `Path` takes as long as reading
            return cls.from_stream(file)

    @classmethod
    def from_stream(cls, file: Stream) -> Footer:
        """Read the footer of an open file.

        Raises:
            ValueError: when the file has no footer.
            OSError: when it cannot be read.
        """
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _FIRST_READ_BYTES, 0))
        end = file.read()
        length = _footer_length(end, size)
        if length > len(end):
            file.seek(size - length)
            end = file.read()
        return cls(end[-length:], size)

    @classmethod
    def from_content(cls, content: bytes) -> Footer:
        """Return the footer of a file that is in memory.

        Raises:
            ValueError: when the file has no footer.
        """
        return cls(content[-_footer_length(content, len(content)) :], len(content))

    @property
    def digest(self) -> str:
        """A hash of the footer; a file with different content has a different footer."""
        return hashlib.sha256(self.content[:-_TAIL_BYTES]).hexdigest()[:32]


def _footer_length(end: bytes, size_bytes: int) -> int:
    """Return the number of bytes from the footer to the end of a file of this size."""
    length = int.from_bytes(end[-_TAIL_BYTES:-4], "little") + _TAIL_BYTES
    if end[-4:] != _MAGIC or length > size_bytes:
        msg = f"no Parquet footer at its end, {size_bytes} bytes"
        raise ValueError(msg)
    return length
