"""List the raw files of a source in an object store: a prefix, one object, or a path with wildcards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backstream.errors import PlanError
from backstream.runs.input_files import HIDDEN
from backstream.source.raw_files import IgnoredPaths, RawFile, is_data_file, reason_no_data
from backstream.source.wildcards import is_hidden, parts_below, split_pattern
from backstream.storage.object_stores import StoreAccess, explain_store_errors, require_known_store


def list_stored_files(address: str, format_name: str, where: str, ignored: IgnoredPaths) -> Iterator[RawFile]:
    """Yield the data files of an address in an object store.

    An object that the address or its pattern names is data, whatever its suffix. Objects below a prefix are data
    if they have a suffix of the format, and no part of their names begins with `_` or `.`. The others are added to
    `ignored`.

    Raises:
        SpecError: when the store is unknown, or the address contains a key.
        PlanError: when nothing has the address.
        StorageError: when the store cannot be read.
    """
    require_known_store(address, where)
    root, pattern = split_pattern(address)
    scheme = address.partition("://")[0]
    with explain_store_errors("list", address):
        filesystem, path = StoreAccess.from_environment().open(root)
        infos = _list_objects(filesystem, path)
    if not infos and not pattern:
        msg = f"no file or folder at {address} ({where}, source.path)"
        raise PlanError(msg)
    for info in infos:
        parts = tuple(info.path.removeprefix(path).strip("/").split("/"))
        if info.path == path or is_wanted(parts, pattern, format_name):
            yield RawFile(f"{scheme}://{info.path}", info.size, (info.mtime_ns or 0) // 1_000_000)
        elif below := parts if not pattern else parts_below(parts, pattern):
            ignored[reason_no_data(below, format_name) or HIDDEN].add(f"{scheme}://{info.path}")


def _list_objects(filesystem: Any, path: str) -> list[Any]:
    """Return the objects below a prefix, or the object with this name; without placeholders of folders."""
    from pyarrow.fs import FileSelector

    info = filesystem.get_file_info(path)
    if info.is_file:
        return [info]
    infos = filesystem.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    return [info for info in infos if info.is_file]


def is_wanted(parts: tuple[str, ...], pattern: str, format_name: str) -> bool:
    """Return whether an object is data, by its path below the folder before the pattern."""
    if not pattern:
        return is_data_file(parts, format_name)
    below = None if is_hidden(parts) else parts_below(parts, pattern)
    return below is not None and (not below or is_data_file(below, format_name))
