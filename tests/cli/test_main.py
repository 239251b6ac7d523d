"""How a command ends its process: with its status, with all that it said, and after what libraries do last."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHILD = """
import atexit, sys
import typer
from backstream.cli import app, main

@app.command()
def speak(lines: int) -> None:
    if lines > 3:
        atexit.register(print, "last", file=sys.stderr)
    for line in range(lines):
        print(line)
    if lines == 3:
        raise typer.Exit(7)
    if lines == 2:
        sys.exit("no answer")

sys.argv = ["backstream", *sys.argv[1:]]
main()
"""


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, check=False)


def test_a_command_prints_all_its_output_and_runs_the_exit_handlers() -> None:
    ended = child("speak", "100000")

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [*map(str, range(100_000))]
    assert ended.stderr == "last\n"


def test_the_status_is_that_of_the_command() -> None:
    assert child("speak", "3").returncode == 7
    assert child("speak").returncode == 2


def test_a_closed_pipe_causes_no_trace() -> None:
    told = subprocess.run(
        ["bash", "-c", f"{sys.executable} -c '{CHILD}' speak 100000 | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.stdout == "0\n"
    assert told.stderr == "last\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("lines", [1, 100_000])
def test_output_that_a_full_disk_refuses_is_an_error(lines: int, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device, not a file
        ended = subprocess.run(
            [sys.executable, "-c", CHILD, "speak", str(lines)],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ended.returncode == 1
    assert ended.stderr.removeprefix("last\n") == "error: cannot write: No space left on device\n"


def test_the_text_that_a_command_ends_with_is_on_standard_error() -> None:
    ended = child("speak", "2")

    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "0\n1\n", "no answer\n")
