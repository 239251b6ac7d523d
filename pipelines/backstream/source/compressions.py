"""Recognize compressed text files that Spark would read as something else, or not at all.

Spark chooses a codec by the suffix. A file that is not BZip2 has no lines for it, and a frame of the `lz4` command
makes it allocate gigabytes. So the first bytes of such files are compared before.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from backstream.definition.source_section import Source
from backstream.source.csv_headers import has_header
from backstream.source.reader import UnreadableError

_HADOOP_BLOCKS = (".lz4", ".snappy")
_FRAMES = {b"\x04\x22\x4d\x18": "an LZ4 frame", b"\xff\x06\x00\x00sNaPpY": "a Snappy frame"}
"""First bytes of files that the usual tools write; Hadoop and Spark write blocks with their lengths instead."""
_WITHOUT_HEADER = (*_HADOOP_BLOCKS, ".deflate")
_ADVICE = "compress it with gzip, bzip2, or zstd"


def require_known_compressions(source: Source, paths: Iterable[str]) -> None:
    """Check that Spark can decompress the local text files of a source, as far as their first bytes show it.

    Raises:
        UnreadableError: with the first file that it cannot decompress.
    """
    if source.format not in {"json", "csv"}:
        return
    for path in paths:
        if reason := _find_reason(path, has_header=has_header(source)):
            raise UnreadableError(path, reason)


def _find_reason(path: str, *, has_header: bool) -> str | None:
    """Return why a file cannot be read; None if nothing is known against it, or it does not exist."""
    suffix = Path(path).suffix.lower()
    if has_header and suffix in _WITHOUT_HEADER:
        return f"the header of a CSV file with the suffix {suffix} cannot be read: {_ADVICE}"
    if suffix != ".bz2" and suffix not in _HADOOP_BLOCKS:
        return None
    head = _read_head(path)
    if suffix == ".bz2":
        return None if head.startswith(b"BZh") or not head else "not a BZip2 file"
    kind = next((kind for magic, kind in _FRAMES.items() if head.startswith(magic)), None)
    return kind and f"it is {kind}, and Spark reads only the blocks that Hadoop writes: {_ADVICE}"


def _read_head(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(10)
    except FileNotFoundError:
        return b""
