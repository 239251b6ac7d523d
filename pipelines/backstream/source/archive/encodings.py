"""Detect the encoding of text, and decode it so that each line with other bytes is known."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import StringIO, TextIOWrapper
from typing import Any

UTF_8 = "UTF-8"
UNKNOWN = "unknown"
"""Stands for an encoding that the bytes do not show."""
_CODECS = {
    UTF_8: "utf-8-sig",
    "UTF-32": "utf-32",
    "UTF-16": "utf-16",
    "UTF-16LE": "utf-16-le",
    "UTF-16BE": "utf-16-be",
    "ISO-8859-1": "iso8859-1",
    "windows-1252": "cp1252",
    "ISO-2022-JP": "iso2022_jp",
    UNKNOWN: "utf-8-sig",
}
"""The codecs of Python by the names that the option `encoding` of Spark's readers has."""
GUESSED_ENCODINGS = ("ISO-8859-1", "windows-1252")
"""Encodings in which any bytes are text, so that nothing proves them."""
_UNDECODABLE = "\udcff"
"""Stands for bytes that are not in the encoding; no decoder returns a lone surrogate."""
_MARK_ERRORS = "backstream.mark"
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: UTF_8,
    codecs.BOM_UTF32_LE: "UTF-32",  # begins as that of UTF-16
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_MIN_NUL_SHARE = 0.4
"""UTF-16 of mostly ASCII text has a NUL in this share of its even bytes, or of its odd ones."""
_WINDOWS = re.compile(rb"[\x80-\x9f]")
_UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_WORD = re.compile(r"[^\W\d_]*[^\x00-\x7f](?:[^\x00-\x7f]|[^\W\d_])*")
"""A word with other characters than ASCII; signs such as quotes count as its letters."""
_UNUSUAL_WORD = re.compile(
    # a sign among letters, which is no apostrophe, dash, dot, or space
    r"[^\W\d_][^\x00-\x7f\w\xa0\xad\xae\xb4\xb7\u2013\u2014\u2018\u2019\u2026\u2122]+[^\W\d_]"
    r"|[a-z][\u2013\xb2\xb3\xb9][a-z]|[a-z][\xbc-\xbe]"
    # an opening quote or a sign for thousandths after a letter
    r"|[a-z][\u0192\u02c6\u02dc\u201a\u201e\u2030]|[\u0192\u02c6\u02dc\u2030][A-Za-z]"
    # a capital after a small letter, and a capital that begins no word
    r"|[a-z][\xc0-\xd6\xd8-\xde\u0152\u0160\u017d\u0178]|\u0178[a-z]"
    r"|[^\x00-\x7f\xa0\xab\xbb\xbf\u2013\u2014\u2018-\u201d\u2026\u20ac]{3}"
)
"""Patterns that words of Western Europe lack; texts of other encodings have them in windows-1252."""
_MAX_UNUSUAL_SHARE = 0.25
_ICELANDIC = re.compile("[\xd0\xdd\xde\xf0\xfd\xfe]")
"""Letters of Icelandic, in whose places windows-1254 has those of Turkish."""
_ACCENTED = re.compile("[\xc1\xc9\xcd\xd3\xda\xc6\xe1\xe9\xed\xf3\xfa\xe6]")
_MIN_ACCENTED = 0.25
"""The least number of accented letters for each of those letters in Icelandic; Turkish has almost none."""
_JAPANESE = re.compile(rb"\x1b\$[@B]")
"""The escape sequences before Japanese text in ISO-2022-JP, which is ASCII otherwise."""
_MIN_SHARE_OF_LINES = 0.05
"""Fewer lines in another encoding are damaged lines of UTF-8."""
_OTHER_CODECS = {
    "Shift_JIS": "cp932",
    "GB18030": "gb18030",
    "windows-1251": "cp1251",
    "windows-1250": "cp1250",
    "windows-1254": "cp1254",
    "IBM437": "cp437",
}
"""Codecs of Python by Java's names of encodings that are shown as examples."""


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _UNDECODABLE, error.end


codecs.register_error(_MARK_ERRORS, _mark)


def detect_encoding(text: bytes) -> str | None:
    """Return the encoding of complete lines; None if it is ASCII, which most encodings contain.

    Text is in UTF-8 unless most lines with other bytes than ASCII are not. Then the bytes from 0x80 to 0x9F
    decide: they are letters and quotes in windows-1252, and control characters in ISO-8859-1. If the words would
    not be of Western Europe, the encoding is `UNKNOWN`.
    """
    if mark := next((mark for mark in _BYTE_ORDER_MARKS if text.startswith(mark)), None):
        return _BYTE_ORDER_MARKS[mark]
    half = max(1, len(text) // 2)
    for name, first in (("UTF-16BE", 0), ("UTF-16LE", 1)):
        if text[first::2].count(0) >= _MIN_NUL_SHARE * half and not text[1 - first :: 2].count(0):
            return name
    if text.isascii():
        return "ISO-2022-JP" if _JAPANESE.search(text) else None
    lines = [line for line in text.splitlines() if not line.isascii()]
    others = [line for line in lines if not _is_utf_8(line)]
    if 2 * len(others) <= len(lines):
        return UTF_8
    joined = b"\n".join(others)
    if _UNDEFINED.search(joined) or not _is_western(joined.decode("cp1252", errors="replace")):
        is_damaged = len(others) < _MIN_SHARE_OF_LINES * len(text.splitlines())
        return UTF_8 if is_damaged else UNKNOWN
    return "windows-1252" if _WINDOWS.search(joined) else "ISO-8859-1"


def _is_western(text: str) -> bool:
    words = _WORD.findall(text)
    is_icelandic = len(_ACCENTED.findall(text)) >= _MIN_ACCENTED * len(_ICELANDIC.findall(text))
    patterns = (_UNUSUAL_WORD,) if is_icelandic else (_UNUSUAL_WORD, _ICELANDIC)
    unusual = sum(any(pattern.search(word) for pattern in patterns) for word in words)
    return unusual <= _MAX_UNUSUAL_SHARE * len(words)


def readings_of(text: bytes) -> Iterator[str]:
    """Yield an example of a word that is not ASCII in each encoding in which all bytes are text, with its name."""
    lines = b"\n".join(line for line in text.splitlines() if not line.isascii())
    for name, codec in {**_OTHER_CODECS, "windows-1252": "cp1252"}.items():
        with suppress(UnicodeDecodeError):
            word = _WORD.search(lines.decode(codec))
            if word is not None:
                yield f"{word[0][:20]!r} in {name}"


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


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends, as a file has them: `str.splitlines` also splits at U+2028."""
    return StringIO(text, newline="").readlines()


def is_decoded(text: str) -> bool:
    """Return whether all bytes of a text were in the encoding of the stream."""
    return _UNDECODABLE not in text
