"""List the files of an archive, in a folder or an object store, and detect their format."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from backstream.errors import PlanError
from backstream.runs.input_files import FileList
from backstream.source.archive.encodings import decode_head, split_lines
from backstream.source.archive.log_formats import find_log_format
from backstream.source.archive.sampled import shown_text
from backstream.source.raw_files import is_data_file, reason_unchecked
from backstream.source.wildcards import has_wildcard, is_hidden, parts_below, split_pattern

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_BINARY_FORMATS = {"parquet", "orc", "avro"}
_FORMATS_BY_SUFFIX = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    ".orc": "orc",
    ".avro": "avro",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_MAGIC = ((b"PAR1", "parquet"), (b"ORC", "orc"), (b"Obj\x01", "avro"))
_COMPRESSION_MAGIC = (
    (b"\x1f\x8b", "gzip", ".gz"),
    (b"\x28\xb5\x2f\xfd", "zstd", ".zst"),
    (b"BZh", "bz2", ".bz2"),
)
_NOT_DATA = {".md", ".toml", ".py", ".sh", ".crc", ".yaml", ".yml", ".sql", ".html", ".zip", ".tar"}
_HEAD_BYTES = 8_192
_JSON_BEGIN = re.compile(r"\s*(?:\{|\[(?!\s*[A-Za-z]))")
"""The begin of JSON records; a log can begin with `[Fri Mar 01`."""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One file of an archive, with the compression of its text."""

    path: str
    size_bytes: int
    format: str
    compression: str | None = None


@dataclass(frozen=True, slots=True)
class Archive:
    """The files of one format that lie at a location.

    `location` is the text of the user, and `others` are the paths of files that a run must not read.
    """

    location: str
    filesystem: FileSystem
    root: str
    format: str
    files: tuple[ArchiveFile, ...]
    others: tuple[str, ...]

    @property
    def is_text(self) -> bool:
        """Return whether the files are text."""
        return self.format not in _BINARY_FORMATS

    @property
    def is_log(self) -> bool:
        """Return whether the files are logs of a known format, which a run reads as CSV."""
        return self.format not in (*_BINARY_FORMATS, "json", "csv")

    @property
    def source_format(self) -> str:
        """Return the value of `source.format`."""
        return "csv" if self.is_log else self.format

    @property
    def size_bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def folder_columns(self) -> dict[str, list[str]]:
        """Return the columns in the names of folders, such as `dt=2026-01-01`, with their values."""
        found: dict[str, list[str]] = {}
        for file in self.files:
            for part in PurePosixPath(os.path.relpath(file.path, self.root)).parts[:-1]:
                name, is_column, value = part.partition("=")
                if is_column and name:
                    found.setdefault(name, []).append(value)
        return {name: values for name, values in found.items() if len(values) == len(self.files)}

    def open(self, file: ArchiveFile) -> Any:
        """Return the content of a file as a stream of bytes, decompressed."""
        return _open_stream(self.filesystem, file.path, file.compression)

    def open_raw(self, file: ArchiveFile) -> Any:
        """Return a file for random access."""
        return self.filesystem.open_input_file(file.path)

    def source_path(self) -> str | list[str]:
        """Return the value of `source.path` that names exactly these files."""
        if has_wildcard(self.location) or self.root == self.files[0].path:
            return self.location
        listed = [path for path in self._all_paths if self.is_listed(path)]
        if set(listed) == {file.path for file in self.files}:
            return self.location
        for patterns in self._patterns():
            matched = {path for path in self._all_paths for each in patterns if _is_matched(path, self.root, each)}
            if matched == {file.path for file in self.files}:
                found = [f"{self.location.rstrip('/')}/{each}" for each in patterns]
                return found[0] if len(found) == 1 else found
        return [f"{self.location.rstrip('/')}/{os.path.relpath(file.path, self.root)}" for file in self.files]

    @property
    def _all_paths(self) -> list[str]:
        return [*(file.path for file in self.files), *self.others]

    def is_listed(self, path: str) -> bool:
        """Return whether a run that reads the whole folder reads this file."""
        parts = PurePosixPath(os.path.relpath(path, self.root)).parts
        return is_data_file(parts, self.source_format)

    def _patterns(self) -> Iterator[list[str]]:
        """Yield patterns that may name the files: by the begin of their names, and by their suffixes."""
        names = [PurePosixPath(file.path).name for file in self.files]
        is_flat = all(str(PurePosixPath(file.path).parent) == self.root.rstrip("/") for file in self.files)
        folder = "" if is_flat else "**/"
        if start := _common_start(names):
            yield [f"{folder}{start}*"]
        yield [
            f"{folder}*{suffix}" for suffix in sorted({"".join(PurePosixPath(name).suffixes) for name in names})
        ]


def list_archive(location: str) -> Archive:
    """Return the files at a location: a folder, a file, a path with wildcards, or an `s3://` URI.

    If several formats are there, the archive has the files of the one with the most bytes.

    Raises:
        PlanError: when the location does not exist, or has no file of a known format.
    """
    filesystem, root, pattern = _resolve_location(location)
    infos = [info for info in _list_infos(filesystem, root, location) if _is_wanted(info.path, root, pattern)]
    files = [file for info in infos if (file := _describe(filesystem, info)) is not None]
    if not files:
        _require_checked_text(info.path for info in infos)
        raise _no_events_error(location, filesystem, [info.path for info in infos])
    sizes = Counter[str]()
    for file in files:
        sizes[file.format] += file.size_bytes
    format_name = sizes.most_common(1)[0][0]
    chosen = tuple(file for file in files if file.format == format_name)
    paths = {file.path for file in chosen}
    # A run reads an empty file of text as no records; an empty file of another format is damaged.
    others = tuple(
        info.path for info in infos if info.path not in paths and (info.size or format_name in _BINARY_FORMATS)
    )
    archive = Archive(location, filesystem, root, format_name, chosen, others)
    if archive.is_text:
        _require_checked_text(path for path in others if archive.is_listed(path))
    return archive


def _require_checked_text(paths: Iterable[str]) -> None:
    """Refuse text in a compression that no run reads.

    Raises:
        PlanError: with the first file.
    """
    for path in paths:
        if reason := reason_unchecked(path):
            msg = f"cannot read {path}: {reason} (--from)"
            raise PlanError(msg)


def _no_events_error(location: str, filesystem: FileSystem, paths: Sequence[str]) -> PlanError:
    names = FileList.from_paths(PurePosixPath(path).name for path in paths)
    seen, hint = f"\n  other files: {names}" if paths else "", ""
    if line := next((line for path in paths if (line := _first_line(filesystem, path))), ""):
        seen += f"\n  the first line of text is {shown_text(line)!r}"
        hint = (
            "\n\nhint: write the definition of a text with a record per line yourself: read it as CSV with one"
            ' column, by sep = "\\u0001" and quote = "" in [source.options], and take its parts in [source.derive]'
            " with regexp_extract"
        )
    return PlanError(
        f"no events at {location} (--from): no file is Parquet, JSON, CSV, ORC, Avro, or a known log{seen}{hint}"
    )


def _first_line(filesystem: FileSystem, path: str) -> str:
    """Return the first line of a text file that is not empty; no text for other files."""
    head = _read_head(filesystem, path, None)
    if b"\x00" in head or any(head.startswith(magic) for magic, *_ in (*_MAGIC, *_COMPRESSION_MAGIC)):
        return ""
    return next((line.strip() for line in split_lines(decode_head(head)) if line.strip()), "")


def _resolve_location(location: str) -> tuple[FileSystem, str, str]:
    """Return the file system, the folder or file to list, and the pattern of the paths below it."""
    from pyarrow.fs import FileSystem, LocalFileSystem

    if "://" not in location:
        path = os.path.abspath(location)  # noqa: PTH100 - `resolve` would follow links
        return LocalFileSystem(), *split_pattern(path)
    plain, pattern = split_pattern(location)
    filesystem, root = FileSystem.from_uri(_with_endpoint(plain))
    return filesystem, root, pattern


def _with_endpoint(uri: str) -> str:
    """Return an S3 URI with the endpoint of `$AWS_ENDPOINT_URL`, unless it has parameters of its own."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint or not uri.startswith("s3://") or "?" in uri:
        return uri
    scheme, _, host = endpoint.partition("://")
    return f"{uri}?scheme={scheme}&endpoint_override={host}"


def _list_infos(filesystem: FileSystem, root: str, location: str) -> Iterable[Any]:
    from pyarrow.fs import FileSelector, FileType

    try:
        info = filesystem.get_file_info(root)
        if info.type == FileType.NotFound:
            msg = f"no file or folder at {location} (--from)"
            raise PlanError(msg)
        if info.type == FileType.File:
            return [info]
        infos = filesystem.get_file_info(FileSelector(root, recursive=True))
    except OSError as error:
        msg = f"cannot list {location} (--from): {str(error).partition(chr(10))[0]}"
        raise PlanError(msg) from None
    return sorted((each for each in infos if each.type == FileType.File), key=lambda each: str(each.path))


def _is_wanted(path: str, root: str, pattern: str) -> bool:
    if path == root:
        return True
    if pattern and not _is_matched(path, root, pattern):
        return False
    return not is_hidden(_parts(path, root)) and Path(path).suffix.lower() not in _NOT_DATA


def _is_matched(path: str, root: str, pattern: str) -> bool:
    return parts_below(_parts(path, root), pattern) is not None


def _parts(path: str, root: str) -> tuple[str, ...]:
    return PurePosixPath(os.path.relpath(path, root)).parts


def _describe(filesystem: FileSystem, info: Any) -> ArchiveFile | None:
    """Return a file with its format, by its suffix or else by its first bytes; None for an unknown format."""
    if not info.size or reason_unchecked(info.path):
        return None
    suffix, compression = _suffixes(PurePosixPath(info.path).name)
    format_name = _FORMATS_BY_SUFFIX.get(suffix)
    if format_name is None:
        format_name, compression = _detect_by_content(filesystem, info.path, compression)
    return ArchiveFile(info.path, info.size, format_name, compression) if format_name else None


def _suffixes(name: str) -> tuple[str, str | None]:
    """Return the suffix of a name before its suffix of a compression, and the compression."""
    path = PurePosixPath(name)
    compression = _COMPRESSIONS.get(path.suffix.lower())
    return (path.with_suffix("") if compression else path).suffix.lower(), compression


def _detect_by_content(
    filesystem: FileSystem, path: str, compression: str | None
) -> tuple[str | None, str | None]:
    head = _read_head(filesystem, path, None)
    for magic, format_name in _MAGIC:
        if head.startswith(magic):
            return format_name, None
    compression = next((name for magic, name, _ in _COMPRESSION_MAGIC if head.startswith(magic)), compression)
    return _text_format(_read_head(filesystem, path, compression) if compression else head), compression


def _text_format(head: bytes) -> str | None:
    text = decode_head(head)
    if "\x00" in text:
        return None
    if _JSON_BEGIN.match(text):
        return "json"
    if log := find_log_format(text):
        return log
    lines = split_lines(text.lstrip())[:20]
    separators = [max(line.count(each) for each in (",", "\t", ";", "|")) for line in lines]
    return "csv" if len(separators) > 1 and min(separators[:-1]) > 0 else None


def _read_head(filesystem: FileSystem, path: str, compression: str | None) -> bytes:
    import pyarrow as pa

    try:
        with _open_stream(filesystem, path, compression) as stream:
            return bytes(stream.read(_HEAD_BYTES))
    except (OSError, pa.ArrowException):
        return b""


def require_suffix_of_compression(archive: Archive, file: ArchiveFile) -> None:
    """Check that the suffix of a text file shows its compression, as Spark needs it.

    Raises:
        PlanError: with the suffix.
    """
    if not archive.is_text or _suffixes(PurePosixPath(file.path).name)[1]:
        return
    head = _read_head(archive.filesystem, file.path, None)
    for magic, name, suffix in _COMPRESSION_MAGIC:
        if head.startswith(magic):
            msg = (
                f"cannot read {file.path}: it is compressed with {name}, and its name does not end with {suffix}"
                f" (--from)\n\nhint: rename it"
            )
            raise PlanError(msg)


def open_text(path: str) -> Any:
    """Return the content of a local file as a stream of bytes; its suffix shows whether it is compressed."""
    from pyarrow.fs import LocalFileSystem

    return _open_stream(LocalFileSystem(), path, _suffixes(PurePosixPath(path).name)[1])


def _open_stream(filesystem: FileSystem, path: str, compression: str | None) -> Any:
    return filesystem.open_input_stream(path, compression=compression)


def _common_start(names: Sequence[str]) -> str:
    """Return the characters with which all names begin."""
    first, last = min(names), max(names)
    count = next(
        (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first)
    )
    return first[:count]
