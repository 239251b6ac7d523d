from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.seconds import COMMAND, CONTRIBUTING, Spent, table, with_table

REPOSITORY = Path(__file__).parents[2]
SLOW = """\
import time
import pytest

@pytest.fixture(scope="session")
def shared():
    time.sleep(0.3)

def test_one(shared):
    sum(range(20_000_000))

def test_two(shared): ...
"""


def test_the_folders_that_take_longest_come_first() -> None:
    by_file = {
        "tests/lake/test_a.py": Spent(2, 10.4, 3.0),
        "tests/lake/test_b.py": Spent(1, 1.0, 1.0),
        "tests/spark/test_c.py": Spent(4, 60.0, 80.2),
    }
    assert table(by_file).splitlines() == [
        "| folder | tests | seconds | of the processor |",
        "| --- | --: | --: | --: |",
        "| `tests/spark` | 4 | 60 | 80 |",
        "| `tests/lake` | 3 | 11 | 4 |",
        "| `all` | 7 | 71 | 84 |",
    ]


def test_the_seconds_of_tests_and_of_what_they_share_are_printed_with_several_processes(tmp_path: Path) -> None:
    (tmp_path / "tests" / "slow").mkdir(parents=True)
    (tmp_path / "tests" / "slow" / "test_slow.py").write_text(SLOW)
    (tmp_path / "conftest.py").write_text(
        "from tests.seconds import Seconds\n\n\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(Seconds(), 'seconds')\n"
    )
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "--rootdir", "."]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    told = subprocess.run(command, capture_output=True, check=True, text=True, cwd=tmp_path, env=environment)
    lines = told.stdout.splitlines()
    (row,) = [line for line in lines if line.startswith("| `tests/slow` | 2 |")]
    clock_s, processor_s = (int(cell) for cell in row.split("|")[3:5])
    assert clock_s >= processor_s >= 0
    (fixture,) = [line for line in lines if line.endswith(": shared (tests/slow/test_slow.py)")]
    assert 0.3 <= float(fixture.split("s in")[0]) < 3


def test_the_table_is_replaced_and_all_else_stays() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    assert COMMAND in text
    new = with_table(text, "| a |")
    before, begin, rest = new.partition("<!-- seconds: begin -->\n")
    assert rest.startswith("| a |\n<!-- seconds: end -->\n")
    assert text.startswith(before + begin)
    assert with_table(new, "| a |") == new
