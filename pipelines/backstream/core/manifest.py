"""A manifest: what the job of one chunk leaves for those after it. Standard output is for people."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from backstream.core.errors import LedgerError
from backstream.core.folders import read_json, write_json
from backstream.core.footers import Footer

_DIGEST = "manifest_digest"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One Parquet file that the job wrote; `path` is absolute.

    `records` counts the records behind its rows, where the table says of each row how many they are; else 0.
    `digest` is that of its footer.
    """

    path: str
    size_bytes: int
    rows: int
    records: int = 0
    digest: str = ""

    def is_intact(self) -> bool:
        """Return whether the file is there with the size and the footer that it was written with."""
        try:
            footer = Footer.of(self.path)
        except (OSError, ValueError):
            return False
        return footer.size_bytes == self.size_bytes and self.digest in ("", footer.digest)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one chunk produced.

    `files` maps a table's suffix to the files staged for it; `fates` maps source partition to fate to
    count, so that `events_read = sum of all of them`; `timings_s` maps a stage to seconds.
    """

    run_id: str
    chunk_id: str
    attempt: str
    events_read: int
    fates: Mapping[str, Mapping[str, int]]
    files: Mapping[str, tuple[StagedFile, ...]]
    timings_s: Mapping[str, float] = field(default_factory=dict)
    finished_at: str = ""

    def write(self, path: Path) -> None:
        """Write by atomic rename: a chunk is done when its manifest is there."""
        content = json.loads(json.dumps(asdict(self)))
        write_json(path, content | {_DIGEST: _digest(content)})

    def is_staged(self) -> bool:
        """Whether the files are all there, and are those that the job wrote.

        Vacuum takes those of a run that did not publish them in time; a disk may lose some.
        """
        return all(file.is_intact() for files in self.files.values() for file in files)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The manifest in a file.

        Raises:
            LedgerError: when there is no such file, or its content was changed after it was written.
        """
        content: dict[str, Any] = read_json(path, "manifest")
        if content.pop(_DIGEST, None) != _digest(content):
            msg = f"the manifest of chunk {content.get('chunk_id')} was changed after it was written\n  {path}"
            raise LedgerError(msg)
        files = {
            suffix: tuple(StagedFile(**file) for file in staged) for suffix, staged in content["files"].items()
        }
        return cls(**content | {"files": files})


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def total_fates(manifests: list[Manifest]) -> dict[str, dict[str, int]]:
    """Fates per source partition over all chunks. `outside` is left out: the owning chunk counts the record."""
    total: dict[str, dict[str, int]] = {}
    for manifest in manifests:
        for partition, fates in manifest.fates.items():
            counts = total.setdefault(partition, {})
            for fate, count in fates.items():
                if fate != "outside":
                    counts[fate] = counts.get(fate, 0) + count
    return total
