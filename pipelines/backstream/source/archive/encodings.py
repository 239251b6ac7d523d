"""Detect the encoding of text, and decode it so that each line with other bytes is known."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable
from io import TextIOWrapper
from typing import Any

UTF_8 = "UTF-8"
_CODECS = {
    UTF_8: "utf-8-sig",
    "UTF-16": "utf-16",
    "UTF-16LE": "utf-16-le",
    "UTF-16BE": "utf-16-be",
    "ISO-8859-1": "iso8859-1",
    "windows-1252": "cp1252",
}
"""The codecs of Python by the names that the option `encoding` of Spark's readers has."""
_UNDECODABLE = "\udcff"
"""Stands for bytes that are not in the encoding; no decoder returns a lone surrogate."""
_MARK_ERRORS = "backstream.mark"
_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MIN_NUL_SHARE = 0.4
"""UTF-16 of mostly ASCII text has a NUL in this share of its even bytes, or of its odd ones."""
_WINDOWS = re.compile(rb"[\x80-\x9f]")
_UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _UNDECODABLE, error.end


codecs.register_error(_MARK_ERRORS, _mark)


def detect_encoding(text: bytes) -> str | None:
    """Return the encoding of complete lines; None if it is ASCII, which most encodings contain.

    Text is in UTF-8 unless most lines with other bytes than ASCII are not. Then the bytes from 0x80 to 0x9F
    decide: they are letters and quotes in windows-1252, and control characters in ISO-8859-1.
    """
    if text.startswith(codecs.BOM_UTF8):
        return UTF_8
    if text.startswith(_BYTE_ORDER_MARKS):
        return "UTF-16"
    half = max(1, len(text) // 2)
    for name, first in (("UTF-16BE", 0), ("UTF-16LE", 1)):
        if text[first::2].count(0) >= _MIN_NUL_SHARE * half and not text[1 - first :: 2].count(0):
            return name
    if text.isascii():
        return None
    lines = [line for line in text.splitlines() if not line.isascii()]
    others = [line for line in lines if not _is_utf_8(line)]
    if 2 * len(others) <= len(lines) or _UNDEFINED.search(b"".join(others)):
        return UTF_8
    return "windows-1252" if _WINDOWS.search(b"".join(others)) else "ISO-8859-1"


def _is_utf_8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def common_encoding(found: Iterable[str | None]) -> str:
    """Return the encoding of most files; windows-1252 contains the letters of ISO-8859-1."""
    names = [name for name in found if name is not None]
    if "windows-1252" in names:
        names = ["windows-1252" if name == "ISO-8859-1" else name for name in names]
    return Counter(names).most_common(1)[0][0] if names else UTF_8


def open_decoded(stream: Any, encoding: str, newline: str | None = None) -> TextIOWrapper:
    """Return a stream of bytes as text without a byte order mark; `is_decoded` tells which lines are complete."""
    return TextIOWrapper(stream, encoding=_CODECS[encoding], errors=_MARK_ERRORS, newline=newline)


def decode_head(head: bytes) -> str:
    """Return the begin of a file as text."""
    return head.decode(_CODECS[detect_encoding(head) or UTF_8], errors=_MARK_ERRORS)


def is_decoded(text: str) -> bool:
    """Return whether all bytes of a text were in the encoding of the stream."""
    return _UNDECODABLE not in text
