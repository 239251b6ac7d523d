"""Read the lines of a piece, and set those apart that Spark must read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from backstream.native.preparation.csv_cells import CsvLines
from backstream.native.preparation.json_lines import JsonLines
from backstream.native.preparation.line_blocks import read_line_blocks
from backstream.native.preparation.lines import Lines
from backstream.native.preparation.pieces import estimate_bytes
from backstream.native.preparation.rows import RowMaker
from backstream.native.preparation.task import (
    Piece,
    RewrittenText,
    UnusualFileError,
    UnusualLineError,
    UnusualLines,
    UnusualLinesError,
    UnusualRowsError,
)
from backstream.native.preparation.text_check import (
    LineFile,
    TextFileError,
    require_encoding,
    write_unusual_lines,
)
from backstream.source.files import read_error_text

_PARTS, _MAX_PART_LINES = 8, 16
"""Lines with an unusual one are divided into parts until a part has few lines; Spark reads all of these."""
_FREE_LINES, _FREE_BYTES, _MAX_SHARE = 10, 65_536, 0.05
"""Above this share of unusual lines, Spark reads the whole file; some lines and bytes are always accepted."""
_ATTEMPT_BYTES, _FREE_ATTEMPTS, _MAX_ATTEMPTS = 65_536, 200, 2
"""An attempt costs as much as these bytes. Attempts are limited to this number, and this multiple of the piece."""


class LineReader:
    """Reader of one piece."""

    def __init__(self, piece: Piece, maker: RowMaker) -> None:
        self._piece, self._maker, self._form = piece, maker, maker.spec.form
        self._parser = CsvLines(maker.spec, piece) if self._form.format == "csv" else JsonLines(maker.spec)
        self._unusual: list[bytes] = []
        self._numbers: list[int] = []
        self._bytes_left = _FREE_BYTES + int(_MAX_SHARE * estimate_bytes(piece))
        self._attempt_bytes_left = _FREE_ATTEMPTS * _ATTEMPT_BYTES + _MAX_ATTEMPTS * estimate_bytes(piece)
        self._reason = ""
        self.lines = 0

    def prepared_tables(self) -> Iterator[pa.Table]:
        """Yield the prepared rows of the ordinary lines, and count all lines.

        Raises:
            UnusualFileError: with the reason, if Spark must read the whole file.
        """
        try:
            if not self._piece.start:
                require_encoding(self._piece, self._form)
            has_header = self._form.has_header and not self._piece.start
            for block in read_line_blocks(self._piece):
                lines, count = Lines.from_block(block, self.lines)
                self.lines += count
                if has_header and len(lines):
                    lines, has_header = lines.select(slice(1, None)), False
                yield from self._parse(self._parser.select(lines, self._keep))
        except (pa.ArrowException, OSError) as error:
            raise UnusualFileError(read_error_text(error)) from None
        except TextFileError as error:
            raise UnusualFileError(str(error)) from None
        if len(self._numbers) > _FREE_LINES + _MAX_SHARE * self.lines:
            raise UnusualFileError(self._reason)

    def write_unusual_lines(self, folder: str, attempt: str) -> UnusualLines | None:
        """Write the lines that are set apart to files with the path of the raw file and a suffix."""
        if not self._numbers:
            return None
        target = f"{folder}{self._piece.path}~{attempt}"
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        content = b"".join(self._unusual)
        with LineFile(target) as records, LineFile(f"{target}-rejected") as rejected:
            if self._form.has_header:
                records.append(self._form.csv.header(self._piece.columns), 1)
            write_unusual_lines(content, np.array(self._numbers), self._form, records, rejected)
        return UnusualLines(
            self._piece.path,
            RewrittenText(records.path, records.numbers, rejected.path, rejected.numbers),
            len(self._numbers),
            self._reason,
        )

    def _parse(self, lines: Lines) -> Iterator[pa.Table]:
        records: pa.Table | None = None
        while len(lines):
            try:
                if records is None:
                    records = self._parser.parse(lines)
                table = self._maker.prepared_rows(records, self._piece)
            except UnusualRowsError as error:
                self._count_attempt(lines if records is None else None)
                records = None if records is None else records.filter(pa.array(~error.rows))
                lines = self._keep(lines, ~error.rows, str(error))
            except UnusualLineError as error:
                lines = self._keep(lines, self._find_accepted(lines, error), str(error))
            except UnusualLinesError as error:
                self._count_attempt(lines)
                if len(lines) > _MAX_PART_LINES:
                    for part in lines.split(_PARTS):
                        yield from self._parse(part)
                else:
                    self._set_apart(lines, str(error))
                return
            else:
                yield table
                return

    def _find_accepted(self, lines: Lines, error: UnusualLineError | None) -> np.ndarray:
        """Return for each line whether Arrow accepts it, with the first error; lines are parsed once for that."""
        is_accepted, start = np.ones(len(lines), bool), 0
        while error is not None:
            self._count_attempt(lines.select(slice(start, start + error.row + 1)))
            start += error.row + 1
            is_accepted[start - 1] = False
            rest = lines.select(slice(start, None))
            try:
                if len(rest):
                    self._parser.parse(rest)
            except UnusualLineError as next_error:
                error = next_error
            except UnusualLinesError:  # the next attempt with all accepted lines shows it
                error = None
            else:
                error = None
        return is_accepted

    def _count_attempt(self, lines: Lines | None) -> None:
        """Count the bytes of an attempt that failed; too many are slower than Spark."""
        size_bytes = int((lines.ends - lines.starts).sum()) if lines is not None else 0
        self._attempt_bytes_left -= size_bytes + _ATTEMPT_BYTES
        if self._attempt_bytes_left < 0:
            msg = "many of its lines are unusual"
            raise UnusualFileError(msg)

    def _keep(self, lines: Lines, is_kept: np.ndarray, reason: str) -> Lines:
        """Return the lines that are kept, and set the others apart."""
        if is_kept.all():
            return lines
        self._set_apart(lines.select(~is_kept), reason)
        return lines.select(is_kept)

    def _set_apart(self, lines: Lines, reason: str) -> None:
        self._reason = self._reason or reason
        content = lines.content
        self._bytes_left -= len(content)
        if self._bytes_left < 0:
            raise UnusualFileError(self._reason)
        self._unusual.append(content)
        self._numbers += lines.numbers.tolist()
