"""What Spark says of a file that it cannot read: one sentence for people, Java's own words in a file."""

from __future__ import annotations

import errno
import os
import re
import uuid

from backstream.core.errors import ContractError
from backstream.core.folders import write_text
from backstream.core.plan import Plan
from backstream.spark.read import file_uri

REFUSALS = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS))
"""What Java and DuckDB pass on, word for word, of an operating system that does not let them write."""
_SAID = re.compile(r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (file:.+?)\.\s+(.*)")
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*[\w$]+: (.+)$", re.MULTILINE)
_WHY = {
    "NO_HINT": "its pages are damaged",
    "CANNOT_READ_FILE_FOOTER": "its footer is damaged",
    "FILE_NOT_EXIST": "it is gone",
}


def unreadable_file(said: str, plan: Plan) -> ContractError | None:
    """Return the error to raise for what Spark said, after keeping its words in the run's folder.

    None: no input file of the plan is to blame.
    """
    found = _SAID.search(said)
    if found is None:
        return None
    kind, uri, rest = found.groups()
    path = _path_of(uri, plan)
    if path is None:
        return None
    account = plan.folder.errors / f"{uuid.uuid4().hex[:8]}.txt"
    write_text(account, said)
    why = _WHY.get(kind) or rest.partition(" SQLSTATE")[0].rstrip(".")
    causes = _CAUSE.findall(said)
    fact = f"\n  {_short(causes[0])}" if causes else ""
    return ContractError(
        f"cannot read input file {path}: {why}{fact}\n  what Spark said is in {account}\n\n"
        'hint: put it back, move it away, or set source.corrupt_files = "skip"; then plan the range anew'
    )


def _path_of(uri: str, plan: Plan) -> str | None:
    """The input file that Spark means; it writes two slashes more or less, and may quote or not."""
    known = {
        _plain(name): file.path for file in plan.inputs for name in (file_uri(file.path), f"file:{file.path}")
    }
    return known.get(_plain(uri))


def _plain(uri: str) -> str:
    return "/" + uri.removeprefix("file:").lstrip("/")


def _short(text: str) -> str:
    """A line of Java's: what follows a colon or goes on for long is for its own file."""
    longest = 160
    line = text.strip()
    return line if len(line) <= longest else f"{line[:longest]}.."
