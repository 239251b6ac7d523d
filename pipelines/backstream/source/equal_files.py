"""Find files with the same content, which is a second delivery: their records would count twice."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from backstream.definition.source_section import Source
from backstream.source.archive.files import open_text
from backstream.storage.stores import is_in_store

_END_BYTES = 4_096


def counts_equal_files_twice(source: Source) -> bool:
    """Return whether no other check finds a second delivery: the source has neither a sequence nor an identity."""
    return source.sequence is None and not source.deduplicate_on


def find_equal_files(sizes: Mapping[str, Hashable], format_name: str) -> dict[str, str]:
    """Return the local files that have the content of an earlier one, with its path, in order of paths.

    Files are compared if they have an equal size: first their ends, and then their whole content. Files without
    records are left out, and so are text files of one line, which may be a header. Files in object stores are not
    compared.

    Args:
        sizes: the size of each file by path, or other values that are equal for files of the same content.
        format_name: the format of the files.
    """
    groups = _group_equal((path for path in sorted(sizes) if not is_in_store(path)), sizes.__getitem__)
    groups = [part for group in groups for part in _group_equal(group, _hash_ends)]
    groups = [part for group in groups for part in _group_equal(group, _hash_content)]
    return {path: first for first, *others in groups if _has_records(first, format_name) for path in others}


def _group_equal(paths: Iterable[str], value_of: Callable[[str], Hashable]) -> list[list[str]]:
    """Return the groups of several files with an equal value; files that were removed are in none."""
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for path in paths:
        with suppress(FileNotFoundError):
            groups[value_of(path)].append(path)
    return [group for group in groups.values() if len(group) > 1]


def _hash_ends(path: str) -> bytes:
    with Path(path).open("rb") as file:
        first = file.read(_END_BYTES)
        file.seek(-min(_END_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return hashlib.sha256(first + file.read()).digest()


def _hash_content(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _has_records(path: str, format_name: str) -> bool:
    """Return whether a file has records, as far as it is cheap to know; damaged files are reported elsewhere."""
    try:
        if format_name == "parquet":
            return bool(pq.read_metadata(path).num_rows)
        if format_name == "orc":
            return bool(orc.ORCFile(path).nrows)
        if format_name in {"json", "csv"}:
            with open_text(path) as lines:
                return len(list(islice(TextIOWrapper(lines, encoding="utf-8", errors="replace"), 2))) > 1
    except (pa.ArrowException, OSError):
        return False
    return True
