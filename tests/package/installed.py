"""Build the wheel, and run programs of an environment that has it, in a project outside of the checkout."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from demo.settings import CHECKOUT

DAG_FILE = """\
from pathlib import Path

from backstream.airflow import backfill_dags

globals().update(backfill_dags(Path(__file__).parent / "definitions"))
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a project in which its commands run."""

    environment: Path
    project: Path

    def run(self, *command: str | Path, status: int = 0, timeout_s: float = 300) -> str:
        """Return the standard output of a program of the environment."""
        name, *arguments = command
        inherited = {"HOME": str(self.project), "PATH": "/usr/bin:/bin", "BACKSTREAM_DRIVER_MEMORY": "1g"}
        airflow = {"AIRFLOW_HOME": str(self.project / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "false"}
        ended = subprocess.run(
            [self.environment / "bin" / name, *arguments],
            cwd=self.project,
            env=inherited | airflow,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert ended.returncode == status, ended.stderr
        return ended.stdout


def build_wheel(folder: Path) -> Path:
    """Build the sdist, and from it the wheel; return the wheel."""
    run_uv("build", "--out-dir", folder, CHECKOUT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def run_uv(*arguments: str | Path) -> str:
    """Run the uv of the checkout, and return its standard output."""
    uv = subprocess.run(["bin/setup", "uv"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    command = [CHECKOUT / uv.strip(), "--no-config", *arguments]  # the checkout overrides dependencies
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
