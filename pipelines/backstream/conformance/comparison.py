"""Compare the results of an engine with those of Flink, and count the cases that agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from backstream.conformance.cases import Case, UnsupportedCaseError, parse_case
from backstream.errors import BackstreamError, SpecError

Pairs = Mapping[str, tuple[Any, Any]]
"""The value of Flink and the value of an engine, by what they are. An engine's None: it does not compute it."""


class EngineResult(Protocol):
    """The result of an engine for a case."""

    def pairs(self, case: Case, flink: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Flink."""


Engine = Callable[[Sequence[Case]], Sequence[EngineResult | BackstreamError]]
"""A function that runs cases; the result of a failed case is its error, at the same position."""


@dataclass(slots=True)
class Tally:
    """The number of cases that agree with Flink, a line for each that differs, and why others did not run."""

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
    """Run every case on an engine and compare the results with those of Flink.

    Raises:
        SpecError: when a case lacks a part, or a part has another type.
    """
    cases = [_parse_or_error(line["case"]) for line in lines]
    results = iter(engine([case for case in cases if isinstance(case, Case)]))
    tally = Tally()
    for line, case in zip(lines, cases, strict=True):
        result = next(results) if isinstance(case, Case) else case
        try:
            _count(tally, line, case, result)
        except (KeyError, TypeError, AttributeError) as error:
            raise _malformed_error(line["case"], error) from error
    return tally


def _parse_or_error(case: Mapping[str, Any]) -> Case | BackstreamError:
    try:
        return parse_case(case)
    except BackstreamError as error:
        return error
    except (KeyError, TypeError, AttributeError) as error:
        raise _malformed_error(case, error) from error


def _malformed_error(case: Mapping[str, Any], error: Exception) -> SpecError:
    return SpecError(f"conformance case {case.get('name', '?')!r} is malformed: {error!r}")


def _count(
    tally: Tally, line: Mapping[str, Any], case: Case | BackstreamError, result: EngineResult | BackstreamError
) -> None:
    flink, difference = line["flink"], None
    if isinstance(result, UnsupportedCaseError):
        tally.unsupported[str(result)] += 1
        return
    if isinstance(case, BackstreamError) or isinstance(result, BackstreamError):
        if "error" not in flink:
            difference = f"raised {type(result).__name__}: {result}"
    elif "error" in flink:
        difference = f"Flink fails with {flink['error']!r}, this engine does not"
    else:
        difference = next(_list_differences(result.pairs(case, flink)), None)
    if difference:
        tally.differ.append(f"differs: {line['case'].get('name', '?')}: {difference}")
    else:
        tally.agree += 1


def _list_differences(pairs: Pairs) -> Iterator[str]:
    for name, (flink_value, own_value) in pairs.items():
        if own_value is not None and flink_value != own_value:
            yield f"{name}: {_difference_text(flink_value, own_value)}"


def _difference_text(flink: Any, own: Any) -> str:
    if isinstance(flink, Mapping):
        place = next(place for place in sorted({*flink, *own}) if flink.get(place) != own.get(place))
        return f"at {place} Flink {flink.get(place)}, this engine {own.get(place)}"
    if not isinstance(flink, list):
        return f"Flink {flink}, this engine {own}"
    for number, (flink_item, own_item) in enumerate(zip(flink, own, strict=False)):
        if flink_item != own_item:
            return f"at {number} Flink {flink_item}, this engine {own_item}"
    return f"Flink has {len(flink)}, this engine has {len(own)}"
