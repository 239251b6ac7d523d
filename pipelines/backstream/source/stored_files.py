"""List the raw files of a source in an object store: a prefix, one object, or a path with wildcards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from backstream.errors import PlanError
from backstream.source.object_stores import StoreAccess, explain_store_errors, require_known_store
from backstream.source.raw_files import RawFile, has_wildcard, is_data_file, root_of_path

_TOKENS = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.", re.DOTALL)
_PATTERNS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def list_stored_files(address: str, format_name: str, where: str) -> Iterator[RawFile]:
    """Yield the data files of an address in an object store.

    An object that the address or its pattern names is data, whatever its suffix. Objects below a prefix are data
    if they have a suffix of the format, and no part of their names begins with `_` or `.`.

    Raises:
        SpecError: when the store is unknown, or the address contains a key.
        PlanError: when nothing has the address.
        StorageError: when the store cannot be read.
    """
    require_known_store(address, where)
    root = root_of_path(address)
    scheme = address.partition("://")[0]
    with explain_store_errors("list", address):
        filesystem, path = StoreAccess.from_environment().open(root)
        infos = _list_objects(filesystem, path)
    if not infos and not has_wildcard(address):
        msg = f"no file or folder at {address} ({where}, source.path)"
        raise PlanError(msg)
    pattern = _compile(address.removeprefix(root).strip("/")) if has_wildcard(address) else None
    for info in infos:
        parts = tuple(info.path.removeprefix(path).strip("/").split("/"))
        if info.path == path or _is_wanted(parts, pattern, format_name):
            yield RawFile(f"{scheme}://{info.path}", info.size, (info.mtime_ns or 0) // 1_000_000)


def _list_objects(filesystem: Any, path: str) -> list[Any]:
    """Return the objects below a prefix, or the object with this name; without placeholders of folders."""
    from pyarrow.fs import FileSelector

    info = filesystem.get_file_info(path)
    if info.is_file:
        return [info]
    infos = filesystem.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    return [info for info in infos if info.is_file]


def _is_wanted(parts: tuple[str, ...], pattern: re.Pattern[str] | None, format_name: str) -> bool:
    if pattern is None:
        return is_data_file(parts, format_name)
    if any(part.startswith(("_", ".")) for part in parts):
        return False
    if pattern.fullmatch("/".join(parts)):
        return True
    folders = ["/".join(parts[:count]) for count in range(1, len(parts))]
    below = [parts[number + 1 :] for number, folder in enumerate(folders) if pattern.fullmatch(folder)]
    return bool(below) and is_data_file(below[0], format_name)


def _compile(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a path with wildcards, as a file system understands them."""
    return re.compile("".join(_PATTERNS.get(token) or _literal(token) for token in _TOKENS.findall(pattern)))


def _literal(token: str) -> str:
    if len(token) == 1:
        return re.escape(token)
    return f"[^{token[2:]}" if token.startswith("[!") else token  # a class of characters
