from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.house.stored_names import stored_names

COMMAND = re.compile(r"(?:`|\$ +)backstream ([a-z][a-z-]*)([^`\n]*)")
"""A command in a span of code, or after a prompt."""
REPOSITORY = Path(__file__).parents[2]


def make(*arguments: str) -> list[str]:
    """What make prints."""
    told = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=REPOSITORY,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},  # without the variables of a make that may run this test
        check=True,
        capture_output=True,
        text=True,
    )
    return told.stdout.splitlines()


def test_make_alone_lists_what_it_can_do_by_sections() -> None:
    assert make() == [
        "",
        "Use",
        "  make demo        Replay February 2013 of real flights in a real Airflow (EXIT=1: end by itself)",
        "  make bench       Measure, and print one table of ratios",
        "",
        "Develop",
        "  make lint        Style, format, types and layers",
        '  make test        The tests that take seconds, lint beside them (ARGS="-k word" is handed to pytest)',
        '  make test-all    Each kind of test, and lint (ARGS="-m e2e": those with Airflow, clusters, browsers)',
        '  make test-long   What repeats a test with other seeds, forms, or stories (ARGS="tests/e2e")',
        '  make conformance All recordings of Flink on the path of a run (ARGS="--engine spark": on Spark)',
        '  make mutants     Changes of the code that a recording of Flink must notice (ARGS="sessions")',
        '  make matrix      Publish by the wheel with each Python and Airflow (ARGS="--airflow 3.2 --spark 4.0")',
        "  make image       Build the image by docker or buildah, and run it",
        '  make kubernetes  Publish on a real Kubernetes, with faults; Go builds it once (ARGS="-k retry")',
        "  make engines     Read, maintain, and write published tables with real engines, and print a matrix",
        "  make accept      Write what is computed from the code again: names, digests, counts, the reference",
        "",
        "Prepare",
        "  make setup       A Java runtime, uv and the locked environment; the others call it first",
        "  make help        This list",
    ]


PYTEST = ".venv/bin/pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 10"


def test_make_test_prepares_lints_and_runs_the_tests_that_take_seconds() -> None:
    _, *lines, archive, last = make("--dry-run", "test")
    assert lines == [
        "bin/setup",
        ".venv/bin/ruff check",
        ".venv/bin/ruff format --check",
        ".venv/bin/mypy",
        ".venv/bin/lint-imports --no-logo",
    ]
    assert archive.split(";")[-1].strip() == ".venv/bin/python -m tests.class_archive"
    assert (
        last.split(";")[-1].strip()
        == f'{PYTEST} -m "not e2e and not slow and not long and not engines and not image"'
    )


def test_make_test_all_runs_the_tests_that_the_arguments_name() -> None:
    *_, last = make("--dry-run", "test-all", "ARGS=-m e2e")
    assert last.split(";")[-1].strip() == f'{PYTEST} -m "not long and not image" -m e2e'


def test_make_demo_passes_on_that_it_is_to_end_by_itself() -> None:
    *_, last = make("--dry-run", "demo", "EXIT=1")
    assert last.split(";")[-1].strip() == "BACKSTREAM_DEMO_EXIT=1 .venv/bin/python -m demo"


def test_continuous_integration_runs_every_kind_of_test() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test-all" in script.splitlines()
    *_, last = make("--dry-run", "test-all")
    assert last.split(";")[-1].strip() == f'{PYTEST} -m "not long and not image"'


def unknown_commands(text: str, known: frozenset[str]) -> Iterator[str]:
    """Yield the commands and options of a document that don't exist."""
    for command, arguments in COMMAND.findall(text):
        if command not in known:
            yield command
        options = re.findall(r"--[a-z][a-z-]*", arguments)
        yield from (f"{command} {option}" for option in options if f"{command} {option}" not in known)


def test_documents_name_only_commands_and_options_that_exist() -> None:
    known = frozenset(stored_names()["commands"])
    paths = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    assert [
        f"{path.relative_to(REPOSITORY)}: {unknown}"
        for path in paths
        for unknown in unknown_commands(path.read_text(encoding="utf-8"), known)
    ] == []


def test_an_unknown_command_or_option_is_found() -> None:
    text = "`backstream run a.toml --since 1` `backstream resume`\n$ backstream run --until 2\nbackstream reads."
    assert list(unknown_commands(text, frozenset({"run", "run --since"}))) == ["resume", "run --until"]
