from __future__ import annotations

import ast
import configparser
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import backstream

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "pipelines" / "backstream"
LINT = Path(sys.executable).with_name("lint-imports")
ROOMS = {module.name for module in pkgutil.iter_modules(backstream.__path__)}
"""The modules directly under the package."""
BELOW = {"errors", "installed_spark", "text", "user_code", "variables"}
"""The modules that all others may import."""

IMPORTS_ALL = """\
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print("loaded:", *sorted({"pyspark", "great_expectations", "pandas"} & sys.modules.keys()))
"""


def sources(contract: str) -> set[str]:
    """The rooms that a contract of `.importlinter` forbids something."""
    told = configparser.ConfigParser()
    told.read(REPOSITORY / ".importlinter")
    listed = told[f"importlinter:contract:{contract}"]["source_modules"].split()
    return {name.removeprefix("backstream.") for name in listed}


def test_every_room_is_bound_by_the_contracts_that_concern_it() -> None:
    assert sources("airflow") == ROOMS - {
        "errors",
        "installed_spark",
        "text",
        "user_code",
        "variables",
        "airflow",
        "orchestration",
        "ui",
        "cli",
    }
    assert sources("spark") == ROOMS - {
        *("installed_spark", "text", "errors", "user_code", "variables"),
        *(
            "airflow",
            "orchestration",
            "ui",
            "cli",
            "api",
            "jobs",
            "pages",
            "workflow",
            "handover",
            "reconcile",
            "conformance",
            "spark",
        ),
    }
    assert sources("great-expectations") == {
        *("eventtime", "runs", "storage", "definition", "source", "watermarks", "native", "spark", "lake"),
    }
    assert sources("standard-library") == BELOW | {"eventtime", "formatting", "runs"}


@pytest.mark.parametrize(
    ("room", "line", "broken"),
    [
        ("spark", "import airflow.sdk", "only orchestration and ui know Airflow"),
        ("lake", "import pyspark", "what plans, checks, publishes and reports runs without Spark"),
        ("spark", "import great_expectations", "only quality knows Great Expectations"),
        ("runs", "import pydantic", "eventtime and runs rest on the standard library"),
        ("eventtime", "import backstream.lake", "imports go down the layers, never up"),
        ("lake", "import backstream.quality", "imports go down the layers, never up"),
    ],
)
def test_a_forbidden_import_is_found_though_it_hides_in_a_function(
    tmp_path: Path, room: str, line: str, broken: str
) -> None:
    shutil.copytree(PACKAGE, tmp_path / "backstream", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "backstream" / room / "hidden.py").write_text(f"def lazily():\n    {line}\n")
    linted = subprocess.run(
        [LINT, "--no-logo", "--no-cache", "--config", REPOSITORY / ".importlinter"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert f"{broken} BROKEN" in [line.partition(" (")[0] for line in linted.stdout.splitlines()]
    assert linted.returncode == 1


def test_only_event_time_divides_the_sizes_of_windows() -> None:
    """Each second home of a window's geometry is a second rule; use the properties of the window."""
    others = (path for path in PACKAGE.rglob("*.py") if "eventtime" not in path.parts)

    assert [str(path) for path in others if re.search(r"gcd\([^)]*(size|slide|step)", path.read_text())] == []


def test_only_the_run_store_searches_for_runs() -> None:
    """Use `Runs`; `RunFolder` has the names of the files of one run."""
    pattern = re.compile(r"plan\.json|/ \"runs\"|runs/\*")
    texts = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}

    assert [name for name, text in texts.items() if pattern.search(text)] == ["runs/home.py"]


def test_event_time_rules_import_the_standard_library_and_themselves_only() -> None:
    imported = {
        (path.name, name)
        for path in sorted((PACKAGE / "eventtime").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in roots(node)
    }
    allowed = {*sys.stdlib_module_names, "backstream.errors", "backstream.eventtime", "backstream.text"}
    allowed.add("backstream.user_code")
    assert {(file, name) for file, name in imported if name not in allowed} == set()
    assert ("instants.py", "datetime") in imported


def roots(node: ast.AST) -> list[str]:
    """What an import statement names: of our own modules the room, of others the package."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or "."]
    else:
        names = []
    return [".".join(name.split(".")[: 2 if name.startswith("backstream") else 1]) for name in names]


@pytest.mark.parametrize("room", sorted({"orchestration", "ui"} & ROOMS))
def test_what_every_airflow_process_imports_loads_neither_spark_nor_great_expectations(
    tmp_path: Path, room: str
) -> None:
    fresh = subprocess.run(
        [sys.executable, "-c", IMPORTS_ALL, f"backstream.{room}"],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (fresh.stdout.splitlines()[-1:], fresh.returncode) == (["loaded:"], 0), fresh.stderr
