"""What runs had read, run by run: a plan never changes, and may be large, so that each is read once.

Kept of each plan are the files that it knew, as a number with a bit per file, and what else staleness asks for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple, Self

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import BackstreamError
from backstream.runs.file_summaries import load_summary, write_summary
from backstream.runs.home import Home
from backstream.runs.plan import InputFile, Mode, Plan


class PlanInputs(NamedTuple):
    """As much of a plan as staleness asks for; `known` and `skipped` have a bit per file.

    `otherwise` are files that this plan describes otherwise than others do, such as by another column of time.
    """

    mode: Mode
    clock_end_ms: int
    definition: str
    read_files: int
    skipped: int
    otherwise: dict[int, InputFile]


@dataclass(slots=True)
class PlannedInputs:
    """The plans of a dataset's runs; `files` has every file that any of them knew, or that somebody numbered."""

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
        """Those that were read before."""
        summary = load_summary(home.summary(_name(dataset)), f"the plans of {dataset}")
        if summary is None:
            return cls(home, dataset)
        files = [InputFile(*values) for values in summary["files"]]
        numbers = {_identity(file): number for number, file in enumerate(files)}
        plans = {run_id: _read(values) for run_id, values in summary["plans"].items()}
        return cls(home, dataset, files, numbers, plans, summary["definitions"])

    def plan(self, run_id: str) -> PlanInputs | None:
        """The plan of a run; None where it cannot be read."""
        if run_id not in self._plans:
            try:
                plan = Plan.read(self.home.run(self.dataset, run_id).plan)
            except BackstreamError:
                return None
            self._plans[run_id] = self._summarised(plan)
            self._is_new = True
        return self._plans[run_id]

    def definition(self, plan: PlanInputs) -> Definition:
        """The definition that a plan holds; most plans hold the same."""
        digest = plan.definition
        if digest not in self._parsed:
            self._parsed[digest] = parse_definition(self._definitions[digest], f"a plan of {self.dataset}")
        return self._parsed[digest]

    def numbers(self, files: Iterable[InputFile]) -> list[int]:
        """The place of each file in `files`, to which it is added where it is new."""
        found = []
        for file in files:
            number = self._numbers.setdefault(_identity(file), len(self.files))
            if number == len(self.files):
                self.files.append(file)
            found.append(number)
        return found

    def of_plan(self, plan: PlanInputs, numbers: int) -> Iterator[InputFile]:
        """Some files, by their bits, as a plan describes them."""
        for number in range(numbers.bit_length()):
            if numbers >> number & 1:
                yield plan.otherwise.get(number) or self.files[number]

    def keep(self, run_ids: Collection[str] | None = None) -> None:
        """Keep what was read for the next time; of these runs only, where no other will be asked for."""
        kept = {run_id: plan for run_id, plan in self._plans.items() if run_ids is None or run_id in run_ids}
        if self._is_new or len(kept) < len(self._plans):
            wanted = {plan.definition for plan in kept.values()}
            content = {
                "files": [astuple(file) for file in self.files],
                "definitions": {digest: self._definitions[digest] for digest in wanted},
                "plans": {run_id: _written(plan) for run_id, plan in kept.items()},
            }
            write_summary(self.home.summary(_name(self.dataset)), content)
            self._is_new = False

    def _summarised(self, plan: Plan) -> PlanInputs:
        digest = hashlib.sha256(json.dumps(plan.definition, sort_keys=True).encode()).hexdigest()[:16]
        self._definitions[digest] = plan.definition
        numbers = self.numbers(plan.inputs)
        told = zip(numbers, plan.inputs, strict=True)
        otherwise = {number: file for number, file in told if self.files[number] != file}
        skipped = [InputFile(each.path, 0, each.size_bytes, modified_ms=each.modified_ms) for each in plan.skipped]
        known, left_out = (to_bits(each) for each in (numbers, self.numbers(skipped)))
        return PlanInputs(plan.mode, plan.clock_end_ms, digest, known, left_out, otherwise)


def to_bits(numbers: Collection[int]) -> int:
    """Numbers as the bits of one."""
    found = bytearray(max(numbers, default=0) // 8 + 1)
    for number in numbers:
        found[number // 8] |= 1 << number % 8
    return int.from_bytes(found, "little")


def _identity(file: InputFile) -> tuple[str, int, int]:
    return file.path, file.size_bytes, file.modified_ms


def _name(dataset: str) -> str:
    return f"plans-{dataset}"


def _written(plan: PlanInputs) -> list[Any]:
    otherwise = {number: astuple(file) for number, file in plan.otherwise.items()}
    return [*plan[:3], f"{plan.read_files:x}", f"{plan.skipped:x}", otherwise]


def _read(values: list[Any]) -> PlanInputs:
    mode, clock_end_ms, definition, known, skipped, otherwise = values
    described = {int(number): InputFile(*each) for number, each in otherwise.items()}
    return PlanInputs(Mode(mode), clock_end_ms, definition, int(known, 16), int(skipped, 16), described)
