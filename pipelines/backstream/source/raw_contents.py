"""Keep a summary of the records of each raw file in a batch of prepared files, also after the batch is replaced.

The summary has the number of records, and their checksum, per raw file and slice of event time. A checksum is the
sum of the hashes of the records, so it depends neither on their order nor on the way in which they are cut into
files. Two summaries show which raw files changed, and in which slices.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Collection
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS
from backstream.source.raw_files import RawFile
from backstream.storage.files import load_json, remove_file, write_json, write_text

if TYPE_CHECKING:
    import pyarrow as pa

WIDTHS_MS: tuple[int, ...] = (
    MINUTE_MS,
    15 * MINUTE_MS,
    HOUR_MS,
    6 * HOUR_MS,
    *(4**power * DAY_MS for power in range(10)),
)
"""The possible widths of slices. Each divides the next, so two summaries are comparable at the greater width."""
MAX_SLICES = 250_000
"""The number of slices of a batch that its width is chosen for: a few MB for a batch of 256 MB."""
_FOLDER = "_contents"
_KEPT_MS = 30 * DAY_MS
"""Time for which the contents of a replaced batch are kept, even if no published run read the batch."""


def contents_schema() -> pa.Schema:
    """Return the columns of contents.

    `file` is the position in the list of files; null if a transformation removed it. `slice_ms` is the start of
    the slice; null for records without an event time.
    """
    import pyarrow as pa

    return pa.schema(
        [
            ("file", pa.int32()),
            ("slice_ms", pa.int64()),
            ("records", pa.int64()),
            ("checksum", pa.uint64()),
            ("first_arrival_ms", pa.int64()),
        ]
    )


@dataclass(frozen=True, slots=True)
class RawContents:
    """The content of the raw files of a batch.

    Attributes:
        files: the raw files, also those without a record.
        made_with: a digest of the code and the side inputs that changed the records.
        hashed_by: the name and version of the program that computed the hashes.
        width_ms: the width of a slice.
        rows: a row per raw file and slice, see `contents_schema`.
    """

    files: tuple[RawFile, ...]
    made_with: str
    hashed_by: str
    width_ms: int
    rows: pa.Table

    @classmethod
    def find(cls, folder: Path, batch: str) -> Self | None:
        """Return the contents of a batch of a folder of prepared files; None if they were removed."""
        path = _path(folder, batch)
        if not path.exists():
            return None
        import pyarrow as pa
        import pyarrow.parquet as pq

        content = load_json(path, "contents of raw files")
        rows = pq.read_table(pa.BufferReader(base64.b64decode(content["rows"])), schema=contents_schema())
        files = tuple(RawFile(*values) for values in content["files"])
        return cls(files, content["made_with"], content["hashed_by"], content["width_ms"], rows)

    def write(self, folder: Path, batch: str) -> None:
        """Write the contents of a batch by atomic rename."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = pa.BufferOutputStream()
        pq.write_table(self.rows, buffer, compression="zstd")
        content = {
            "files": [astuple(file) for file in self.files],
            "made_with": self.made_with,
            "hashed_by": self.hashed_by,
            "width_ms": self.width_ms,
            "rows": base64.b64encode(buffer.getvalue()).decode(),
        }
        write_json(_path(folder, batch), content)


def mark_as_replaced(folder: Path, batch: str) -> None:
    """Note that a batch was replaced now: from now on, its contents are needed for comparisons only."""
    path = _path(folder, batch)
    if path.exists():
        write_text(path, path.read_text(encoding="utf-8"))  # a store shares no other times


def list_replaced(folder: Path, current: Collection[str]) -> list[str]:
    """Return the batches that were replaced long ago, and whose contents are still kept."""
    end_s = time.time() - _KEPT_MS / 1_000
    others = (path for path in (folder / _FOLDER).glob("*.json") if path.stem not in current)
    return sorted(path.stem for path in others if path.stat().st_mtime < end_s)


def remove_contents(folder: Path, batch: str) -> None:
    """Remove the contents of a batch."""
    remove_file(_path(folder, batch))


def _path(folder: Path, batch: str) -> Path:
    return folder / _FOLDER / f"{batch}.json"
