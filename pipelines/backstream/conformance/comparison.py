"""Compare the results of an engine with those of Flink or Spark, and count the cases that agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from backstream.conformance.cases import Case, Pairs, UnsupportedCaseError, parse_case
from backstream.conformance.recorded_jobs import JobCase, parse_job
from backstream.conformance.script_cases import ScriptCase, parse_script_case
from backstream.errors import BackstreamError, SpecError

_LOST = "Flink has lost records in a buffer, which depends on its checkpoints"

AnyCase = Case | JobCase | ScriptCase
"""A recorded stream of Flink, a recorded job of Spark, or a script of Flink SQL with its rows."""


class EngineResult(Protocol):
    """The result of an engine for a case."""

    def pairs(self, case: Any, recorded: Mapping[str, Any], /) -> Pairs:
        """Return what is compared with the recording of a case."""


Engine = Callable[[Sequence[AnyCase]], Sequence[EngineResult | BackstreamError]]
"""A function that runs cases; the result of a failed case is its error, at the same position."""


@dataclass(slots=True)
class Tally:
    """The number of cases that agree with the recording, a line for each other one, and why some did not run."""

    agree: int = 0
    differ: list[str] = field(default_factory=list)
    unsupported: Counter[str] = field(default_factory=Counter)
    """The number of cases that the engine cannot run, by reason."""

    @property
    def cases(self) -> int:
        """The number of all cases."""
        return self.agree + len(self.differ) + self.unsupported.total()

    def __str__(self) -> str:
        counts = f"agree: {self.agree}  differ: {len(self.differ)}  unsupported: {self.unsupported.total()}"
        return f"cases: {self.cases}  {counts}"


def find_difference(lines: Sequence[Mapping[str, Any]], engine: Engine) -> Tally:
    """Run every case on an engine and compare the results with the recorded ones.

    Raises:
        SpecError: when a case lacks a part, or a part has another type.
    """
    cases = [_parse_or_error(line) for line in lines]
    results = iter(engine([case for case in cases if isinstance(case, AnyCase)]))
    tally = Tally()
    for line, case in zip(lines, cases, strict=True):
        result = next(results) if isinstance(case, AnyCase) else case
        try:
            _count(tally, line, case, result)
        except (KeyError, TypeError, AttributeError) as error:
            raise _malformed_error(line["case"], error) from error
    return tally


def _parse_or_error(line: Mapping[str, Any]) -> AnyCase | BackstreamError:
    try:
        if line.get("flink", {}).get("plain_rule") is False:
            return UnsupportedCaseError(_LOST)
        if "script" in line["case"]:
            return parse_script_case(line)
        return parse_job(line) if "spark" in line else parse_case(line["case"])
    except BackstreamError as error:
        return error
    except (KeyError, TypeError, AttributeError) as error:
        raise _malformed_error(line["case"], error) from error


def _malformed_error(case: Mapping[str, Any], error: Exception) -> SpecError:
    return SpecError(f"conformance case {case.get('name', '?')!r} is malformed: {error!r}")


def _count(
    tally: Tally, line: Mapping[str, Any], case: AnyCase | BackstreamError, result: EngineResult | BackstreamError
) -> None:
    recorded, difference = line.get("flink", line.get("spark")), None
    if isinstance(result, UnsupportedCaseError):
        tally.unsupported[str(result)] += 1
        return
    if isinstance(case, BackstreamError) or isinstance(result, BackstreamError):
        if "error" not in recorded:
            difference = f"raised {type(result).__name__}: {result}"
    elif "error" in recorded:
        difference = f"Flink fails with {recorded['error']!r}, this engine does not"
    else:
        difference = next(_list_differences(result.pairs(case, recorded)), None)
    if difference:
        tally.differ.append(f"differs: {line['case'].get('name', '?')}: {difference}")
    else:
        tally.agree += 1


def _list_differences(pairs: Pairs) -> Iterator[str]:
    for name, (recorded, own) in pairs.items():
        if own is not None and recorded != own:
            yield f"{name}: {_difference_text(recorded, own)}"


def _difference_text(recorded: Any, own: Any) -> str:
    if isinstance(recorded, Mapping):
        place = next(place for place in sorted({*recorded, *own}) if recorded.get(place) != own.get(place))
        return f"at {place} recorded {recorded.get(place)}, this engine {own.get(place)}"
    if not isinstance(recorded, list):
        return f"recorded {recorded}, this engine {own}"
    for number, (recorded_item, own_item) in enumerate(zip(recorded, own, strict=False)):
        if recorded_item != own_item:
            return f"at {number} recorded {recorded_item}, this engine {own_item}"
    return f"recorded {len(recorded)}, this engine has {len(own)}"
