"""Find the lines of a block of bytes, and select some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

_NEWLINE = ord("\n")


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a block of bytes, without empty ones, which Spark ignores.

    `starts` are the positions of their first bytes, `ends` those of their newlines, and `numbers` count the lines
    of a piece from 1, with the empty ones.
    """

    block: bytes
    starts: np.ndarray
    ends: np.ndarray
    numbers: np.ndarray

    @classmethod
    def from_block(cls, block: bytes, lines_before: int = 0) -> tuple[Self, int]:
        """Return the lines of a block that ends with a newline, and their count with the empty ones."""
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
        starts = np.empty_like(ends)
        starts[0] = 0
        starts[1:] = ends[:-1] + 1
        lines = cls(block, starts, ends, np.arange(lines_before + 1, lines_before + len(ends) + 1))
        is_filled = starts < ends
        return (lines if is_filled.all() else lines.select(is_filled)), len(ends)

    def __len__(self) -> int:
        return len(self.ends)

    def select(self, which: np.ndarray | slice) -> Self:
        """Return some of the lines."""
        return type(self)(self.block, self.starts[which], self.ends[which], self.numbers[which])

    def split(self, count: int) -> Iterator[Self]:
        """Yield the lines in at most some parts of similar size."""
        size = -(-len(self) // count)
        return (self.select(slice(start, start + size)) for start in range(0, len(self), size))

    @property
    def content(self) -> bytes:
        """The bytes of the lines with their newlines."""
        gaps = np.flatnonzero(np.diff(self.numbers) > 1) + 1
        firsts, lasts = [0, *gaps], [*(gaps - 1), len(self) - 1]
        parts = [
            self.block[self.starts[first] : self.ends[last] + 1] for first, last in zip(firsts, lasts, strict=True)
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def find_rows(self, positions: Iterable[int]) -> np.ndarray:
        """Return for each line whether it has one of these positions of the content."""
        ends = np.cumsum(self.ends - self.starts + 1)
        has_position = np.zeros(len(self), bool)
        has_position[np.searchsorted(ends, [*positions], side="right")] = True
        return has_position

    def __iter__(self) -> Iterator[bytes]:
        return (self.block[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True))
