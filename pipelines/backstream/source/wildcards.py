"""Read paths with wildcards: `*`, `?`, and `[..]` in a name, and `**` for any number of folders.

A pattern names files, and folders with all files below them. Local files, objects, and the files of an archive
follow the same rules. No pattern names a file or folder that begins with `_` or `.`.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_WILDCARDS = "*?["
_TOKENS = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.", re.DOTALL)
_EXPRESSIONS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def has_wildcard(path: str) -> bool:
    """Return whether a path names several files by a pattern; the name of an existing folder is no pattern."""
    return any(character in path for character in _WILDCARDS) and not Path(path).exists()


def split_pattern(path: str) -> tuple[str, str]:
    """Return the folder before the first name with a wildcard, and the rest, which is empty without one."""
    if not has_wildcard(path):
        return path, ""
    scheme, separator, address = path.rpartition("://")
    parts = address.rstrip("/").split("/")
    count = next(number for number in range(len(parts)) if has_wildcard("/".join(parts[: number + 1])))
    root = "/".join(parts[:count]) or ("/" if address.startswith("/") else "")
    return f"{scheme}{separator}{root}", "/".join(parts[count:])


def is_hidden(parts: Sequence[str]) -> bool:
    """Return whether a part of a path begins with `_` or `.`: writers use such names for their own files.

    Kafka Connect's HDFS sink uses the folder `+tmp`.
    """
    return any(part.startswith(("_", ".")) or part == "+tmp" for part in parts)


def parts_below(parts: Sequence[str], pattern: str) -> tuple[str, ...] | None:
    """Return the part of a file's path below the folder that a pattern names.

    Args:
        parts: the path of the file, relative to the folder before the pattern.
        pattern: the pattern.

    Returns:
        An empty tuple if the pattern names the file itself; None if it names neither the file nor a folder above.
    """
    expression = _compile(pattern)
    for count in range(len(parts), 0, -1):
        if expression.fullmatch("/".join(parts[:count])):
            return tuple(parts[count:])
    return None


@lru_cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_EXPRESSIONS.get(token) or _literal(token) for token in _TOKENS.findall(pattern)))


def _literal(token: str) -> str:
    """Return the expression of a character, or of a class of characters such as `[!ab]`."""
    return fnmatch.translate(token).removeprefix("(?s:").removesuffix(r")\Z")


def walk_files(root: Path) -> Iterator[tuple[tuple[str, ...], os.DirEntry[str]]]:
    """Yield the files below a folder, each with the parts of its path below it. Links to folders are not followed.

    `os.scandir` is several times faster than `Path.rglob` if there are very many files. A folder that is removed
    meanwhile has no files.
    """
    pending: list[tuple[tuple[str, ...], str]] = [((), str(root))]
    while pending:
        parts, folder = pending.pop()
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                own_parts = (*parts, entry.name)
                if entry.is_file():
                    yield own_parts, entry
                elif entry.is_dir(follow_symlinks=False):
                    pending.append((own_parts, entry.path))
