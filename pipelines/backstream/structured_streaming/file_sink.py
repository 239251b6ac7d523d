"""Read which files a job of Structured Streaming has committed to a folder: Spark's log of its file sink.

A batch that failed leaves files that no reader of Spark sees.
"""

from __future__ import annotations

import json
from pathlib import Path

from backstream.errors import SpecError

_LOG = "_spark_metadata"
_COMPACT = ".compact"


def list_committed_names(folder: Path) -> set[str] | None:
    """Return the names of the files that a job has committed to a folder; None if no job has written there.

    A name has a random part, so it is that of one file, also after the folder was copied.

    Raises:
        SpecError: when the log of the sink has another form.
    """
    if not (folder / _LOG).is_dir():
        return None
    parts = [file for file in (folder / _LOG).iterdir() if file.name.removesuffix(_COMPACT).isdecimal()]
    names = set[str]()
    for part in sorted(parts, key=lambda file: (int(file.name.removesuffix(_COMPACT)), file.name)):
        version, *lines = part.read_text(encoding="utf-8").splitlines() or [""]
        if version != "v1":
            msg = f"unknown version {version!r} of the log of a file sink; v1 is known ({part})"
            raise SpecError(msg)
        try:
            names |= {json.loads(line)["path"].rpartition("/")[2] for line in lines if line.strip()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"a line of the log of a file sink has another form than Spark's: {error!r} ({part})"
            raise SpecError(msg) from error
    return names
