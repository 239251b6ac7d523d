"""The seconds of a run of tests by folder: printed at its end, and written into CONTRIBUTING.md.

The seconds of the clock depend on what else the machine does. Those of the processor hardly do; they include the
processes that a test started.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

REPOSITORY = Path(__file__).parents[1]
CONTRIBUTING = REPOSITORY / "CONTRIBUTING.md"
COMMAND = ".venv/bin/python -m tests.seconds"
_KEY = "seconds/by_file"
_LAST_RUN = REPOSITORY / ".pytest_cache" / "v" / _KEY
_BEGIN, _END = "<!-- seconds: begin -->\n", "<!-- seconds: end -->\n"
_FIXTURES = 12


@dataclass
class Spent:
    """Tests, and the seconds that they took together."""

    tests: int = 0
    clock_s: float = 0.0
    processor_s: float = 0.0

    def add(self, tests: int, clock_s: float, processor_s: float) -> None:
        """Add the seconds of other tests."""
        self.tests += tests
        self.clock_s += clock_s
        self.processor_s += processor_s


class Seconds:
    """A plugin of pytest. Tests run in processes of pytest-xdist; the one that prints gets only their reports."""

    def __init__(self) -> None:
        self._fixtures: list[tuple[str, float]] = []
        self._by_file: defaultdict[str, Spent] = defaultdict(Spent)
        self._set_ups: defaultdict[str, list[float]] = defaultdict(list)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Measure how long a fixture takes that several tests share."""
        begin = time.perf_counter()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                name = f"{fixturedef.argname} ({fixturedef.baseid or fixturedef.scope})"
                self._fixtures.append((name, time.perf_counter() - begin))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Remember what the processor has done before a test."""
        item.stash[_PROCESSOR_S] = _processor_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put into the report what pytest does not measure."""
        report = yield
        processor_s = _processor_s()
        # A process that has ended without being waited for takes its seconds with it.
        spent_s = max(0.0, processor_s - item.stash[_PROCESSOR_S])
        vars(report).update(processor_s=spent_s, fixtures=self._fixtures)
        item.stash[_PROCESSOR_S], self._fixtures = processor_s, []
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the reports, in the process that prints."""
        file = report.nodeid.partition("::")[0]
        self._by_file[file].add(int(report.when == "call"), report.duration, getattr(report, "processor_s", 0.0))
        for name, clock_s in getattr(report, "fixtures", ()):
            self._set_ups[name].append(clock_s)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the seconds by folder, and the fixtures whose set-up took longest."""
        terminalreporter.section("seconds by folder")
        terminalreporter.write_line(table(self._by_file))
        terminalreporter.section("longest set-up of shared fixtures")
        longest = sorted(self._set_ups.items(), key=lambda item: -sum(item[1]))[:_FIXTURES]
        for name, seconds in longest:
            terminalreporter.write_line(f"{sum(seconds):7.1f}s in {len(seconds):2}: {name}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep the seconds for `python -m tests.seconds`, in the process that prints."""
        if self._by_file and not hasattr(session.config, "workerinput") and hasattr(session.config, "cache"):
            session.config.cache.set(_KEY, {file: asdict(spent) for file, spent in self._by_file.items()})


_PROCESSOR_S = pytest.StashKey[float]()


def _processor_s() -> float:
    """Return the seconds of the processor of this process and of all that it has started."""
    return sum(_seconds_of([psutil.Process(), *psutil.Process().children(recursive=True)]))


def _seconds_of(processes: Iterable[psutil.Process]) -> Iterator[float]:
    for process in processes:
        try:
            yield sum(process.cpu_times()[:4])  # its own, and those of its children that have ended
        except psutil.Error:
            continue


def table(by_file: dict[str, Spent]) -> str:
    """Return the seconds by folder as a table in Markdown, the longest first."""
    folders: defaultdict[str, Spent] = defaultdict(Spent)
    for file, spent in by_file.items():
        for name in ("/".join(file.split("/")[:2]), "all"):
            folders[name].add(spent.tests, spent.clock_s, spent.processor_s)
    ordered = sorted(folders.items(), key=lambda item: (item[0] == "all", -item[1].clock_s))
    return "\n".join(
        [
            "| folder | tests | seconds | of the processor |",
            "| --- | --: | --: | --: |",
            *(
                f"| `{name}` | {spent.tests} | {spent.clock_s:.0f} | {spent.processor_s:.0f} |"
                for name, spent in ordered
            ),
        ]
    )


def with_table(text: str, new: str) -> str:
    """Return the text of CONTRIBUTING.md with another table."""
    pattern = re.compile(f"(?<={re.escape(_BEGIN)}).*(?={re.escape(_END)})", re.DOTALL)
    return pattern.sub(lambda _: f"{new}\n", text)


def main() -> None:
    """Write the seconds of the last run into CONTRIBUTING.md."""
    content = json.loads(_LAST_RUN.read_text(encoding="utf-8"))
    new = table({file: Spent(**spent) for file, spent in content.items()})
    CONTRIBUTING.write_text(with_table(CONTRIBUTING.read_text(encoding="utf-8"), new), encoding="utf-8")


if __name__ == "__main__":
    main()
