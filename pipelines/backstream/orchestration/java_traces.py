"""Keep the traces of Java out of the log of a task, in a file of their own."""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from backstream.errors import BackstreamError
from backstream.storage.files import write_text

_FRAME = re.compile(r"\s*(at [\w.$/<>]+\(.*\)|Caused by: .*|Suppressed: .*|\.\.\. \d+ more)\s*$")
_MAX_LINES = 20_000


@dataclass(slots=True)
class JavaTraces:
    """The lines of Java's traces in the output of one job.

    Attributes:
        folder: folder of the file with the traces.
    """

    folder: Path
    lines: list[str] = field(default_factory=list)
    _head: str = ""

    @staticmethod
    def without_frames(output: Iterable[str]) -> Iterator[str]:
        """Yield the lines that are no frames of traces."""
        return (line for line in output if not _FRAME.match(line))

    def remove(self, output: Iterable[str]) -> Iterator[str]:
        """Yield a part of the output of a job without the frames of traces, which are kept."""
        for line in output:
            if not _FRAME.match(line):
                self._head = line.rstrip()
                yield line
                continue
            if self._head:
                self._keep(self._head)
                self._head = ""
            self._keep(line.rstrip())

    def describe_file(self) -> str:
        """Write the traces, and return a line with the file that has them; empty without traces."""
        return f"{len(self.lines):,} lines of Java traces are in {self._write()}" if self.lines else ""

    def _keep(self, line: str) -> None:
        if len(self.lines) < _MAX_LINES:
            self.lines.append(line)

    def _write(self) -> Path | str:
        """Write the traces and return the file; on a full disk, use the temporary folder of the system."""
        text, name = "\n".join(self.lines) + "\n", f"java-{uuid.uuid4().hex[:8]}.txt"
        for folder in (self.folder, Path(tempfile.gettempdir())):
            try:
                write_text(folder / name, text)
            except (BackstreamError, OSError):
                continue
            return folder / name
        return "no file, because no folder can be written"
