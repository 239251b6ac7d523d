"""Cache the input files of each run's plan, so that a plan, which can be large and never changes, is read once.

The cache stores the files of each plan as an integer with a bit per file, and the other fields that the search
for stale days needs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple, Self

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.runs.file_summaries import load_summary, write_summary
from backstream.runs.home import Home
from backstream.runs.plan import InputFile, Mode, Plan
from backstream.runs.store import Runs


class PlanInputs(NamedTuple):
    """The fields of a plan that the search for stale days needs; `read_files` and `skipped` have a bit per file.

    `otherwise` are the files that this plan describes differently, for example by another time column.
    """

    mode: Mode
    clock_end_ms: int
    definition: str
    read_files: int
    skipped: int
    otherwise: dict[int, InputFile]


@dataclass(slots=True)
class PlannedInputs:
    """The plans of a dataset's runs; `files` has all files of these plans, and all files that got a number."""

    home: Home
    dataset: str
    files: list[InputFile] = field(default_factory=list)
    _numbers: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _plans: dict[str, PlanInputs] = field(default_factory=dict)
    _definitions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _parsed: dict[str, Definition] = field(default_factory=dict)
    _is_new: bool = False

    @classmethod
    def from_home(cls, home: Home, dataset: str) -> Self:
        """Load the plans that were read before."""
        summary = load_summary(home.summary(_name(dataset)), f"the plans of {dataset}")
        if summary is None:
            return cls(home, dataset)
        files = [InputFile(*values) for values in summary["files"]]
        numbers = {_identity(file): number for number, file in enumerate(files)}
        plans = {run_id: _from_json(values) for run_id, values in summary["plans"].items()}
        return cls(home, dataset, files, numbers, plans, summary["definitions"])

    def plan(self, run_id: str) -> PlanInputs | None:
        """Return the plan of a run; None if it cannot be read."""
        if run_id not in self._plans:
            plan = Runs(self.home).plan_or_none(self.dataset, run_id)
            if plan is None:
                return None
            self._plans[run_id] = self._summarize(plan)
            self._is_new = True
        return self._plans[run_id]

    def definition(self, plan: PlanInputs) -> Definition:
        """Return the definition of a plan; most plans share one."""
        digest = plan.definition
        if digest not in self._parsed:
            self._parsed[digest] = parse_definition(self._definitions[digest], f"a plan of {self.dataset}")
        return self._parsed[digest]

    def numbers(self, files: Iterable[InputFile]) -> list[int]:
        """Return the position of each file in `files`; new files are appended."""
        numbers = []
        for file in files:
            number = self._numbers.setdefault(_identity(file), len(self.files))
            if number == len(self.files):
                self.files.append(file)
            numbers.append(number)
        return numbers

    def of_plan(self, plan: PlanInputs, numbers: int) -> Iterator[InputFile]:
        """Yield files, given as bits, as a plan describes them."""
        for number in range(numbers.bit_length()):
            if numbers >> number & 1:
                yield plan.otherwise.get(number) or self.files[number]

    def has_read_folder(self, name: str) -> bool:
        """Return whether a plan has a file in a folder of this name."""
        read = 0
        for plan in self._plans.values():
            read |= plan.read_files
        return any(
            read >> number & 1 for number, file in enumerate(self.files) if file.path.split("/")[-2:-1] == [name]
        )

    def keep(self, run_ids: Collection[str] | None = None) -> None:
        """Write the plans to the cache; given run ids, only the plans of these runs."""
        wanted = {run_id: plan for run_id, plan in self._plans.items() if run_ids is None or run_id in run_ids}
        if self._is_new or len(wanted) < len(self._plans):
            digests = {plan.definition for plan in wanted.values()}
            content = {
                "files": [astuple(file) for file in self.files],
                "definitions": {digest: self._definitions[digest] for digest in digests},
                "plans": {run_id: _to_json(plan) for run_id, plan in wanted.items()},
            }
            write_summary(self.home.summary(_name(self.dataset)), content)
            self._is_new = False

    def _summarize(self, plan: Plan) -> PlanInputs:
        digest = hashlib.sha256(json.dumps(plan.definition, sort_keys=True).encode()).hexdigest()[:16]
        self._definitions[digest] = plan.definition
        numbers = self.numbers(plan.inputs)
        numbered = zip(numbers, plan.inputs, strict=True)
        otherwise = {number: file for number, file in numbered if self.files[number] != file}
        skipped = [InputFile(file.path, 0, file.size_bytes, modified_ms=file.modified_ms) for file in plan.skipped]
        read_bits, skipped_bits = to_bits(numbers), to_bits(self.numbers(skipped))
        return PlanInputs(plan.mode, plan.clock_end_ms, digest, read_bits, skipped_bits, otherwise)


def to_bits(numbers: Collection[int]) -> int:
    """Return an integer with the bits at these positions set."""
    bits = bytearray(max(numbers, default=0) // 8 + 1)
    for number in numbers:
        bits[number // 8] |= 1 << number % 8
    return int.from_bytes(bits, "little")


def _identity(file: InputFile) -> tuple[str, int, int]:
    return file.path, file.size_bytes, file.modified_ms


def _name(dataset: str) -> str:
    return f"plans-{dataset}"


def _to_json(plan: PlanInputs) -> list[Any]:
    otherwise = {number: astuple(file) for number, file in plan.otherwise.items()}
    return [*plan[:3], f"{plan.read_files:x}", f"{plan.skipped:x}", otherwise]


def _from_json(values: list[Any]) -> PlanInputs:
    mode, clock_end_ms, definition, read_bits, skipped_bits, otherwise = values
    files = {int(number): InputFile(*fields) for number, fields in otherwise.items()}
    return PlanInputs(Mode(mode), clock_end_ms, definition, int(read_bits, 16), int(skipped_bits, 16), files)
