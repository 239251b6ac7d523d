"""Move the traces of Java from the log of a task to a file, so that people find the sentence of the error."""

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

    def remove(self, output: Iterable[str]) -> Iterator[str]:
        """Yield the output of a job without the frames of traces, and at its end the file that has them."""
        head = ""
        for line in output:
            if not _FRAME.match(line):
                head = line.rstrip()
                yield line
                continue
            if head:
                self._keep(head)
                head = ""
            self._keep(line.rstrip())
        if self.lines:
            yield f"{len(self.lines):,} lines of Java traces are in {self._write()}"

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
