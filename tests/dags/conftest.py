"""Airflow is asked in processes of its own: importing it here would set up its logging and folders for pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]

Ask = Callable[..., Any]


@pytest.fixture(scope="session")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Return a function that asks `ask.py` a question, and returns its answer. A start takes seconds."""
    airflow_home = tmp_path_factory.mktemp("airflow")

    def answered(*question: str | Path) -> Any:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        done = subprocess.run(
            [sys.executable, "-m", "tests.dags.ask", *map(str, question)],
            env=inherited | {"AIRFLOW_HOME": str(airflow_home), "PYTHONPATH": str(REPOSITORY)},
            cwd=airflow_home,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return answered
