"""Store the receipt of a verification: the sample of windows that was recomputed, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from backstream.storage.files import load_json, write_json


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a verification of published rows by the reference engine.

    `requested` is the size of the sample, `verified` the number of rows that were compared, of `rows` that the run
    published. `replaced` rows of the sample belong to other runs by now. `findings` are sentences, one for each
    disagreement. `hashes` are those of the inputs, the plan, the definition, the code, and the compared rows.
    """

    run_id: str
    verified_at: str
    seed: int
    requested: int
    verified: int
    rows: int
    replaced: int
    findings: tuple[str, ...]
    hashes: Mapping[str, str]

    @property
    def is_confirmed(self) -> bool:
        """Return whether nothing disagrees."""
        return not self.findings

    @property
    def share(self) -> float:
        """The share of the run's rows that were verified."""
        return self.verified / self.rows if self.rows else 0.0

    def write(self, path: Path) -> None:
        """Write the receipt as JSON."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the receipt in a file; None if there is none.

        Raises:
            LedgerError: when the file is no JSON object.
        """
        if not path.exists():
            return None
        content: dict[str, Any] = load_json(path, "receipt")
        return cls(**{**content, "findings": tuple(content["findings"])})
