"""Executors have backstream's code, PyArrow, and DuckDB: what a task imports needs nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CHILD = """
import importlib, json, sys
before = set(sys.modules)
importlib.import_module(sys.argv[1])
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(loaded - sys.stdlib_module_names)))
"""


@pytest.mark.parametrize("module", ["native.task_runner", "native.sessions.arrow_replay", "user_code"])
def test_a_task_imports_only_what_executors_have(module: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD, f"backstream.{module}"], capture_output=True, text=True, check=True
    )

    packages = {name for name in json.loads(child.stdout) if not name.startswith("_")}
    # PyArrow imports `cloudpickle` if it is there.
    assert packages <= {"backstream", "pyarrow", "numpy", "duckdb", "cython_runtime", "cloudpickle"}
