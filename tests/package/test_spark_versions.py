"""The oldest versions of Spark publish the same rows as the installed one. `make matrix` tries all versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.package import publish_cases
from tests.package.installed import run_uv

pytestmark = pytest.mark.e2e


def publish(folder: Path, *cases: str, packages: str = "") -> tuple[str, dict[str, str]]:
    """Publish cases in an own process; return the version of Spark, and the hash of each case."""
    folder.mkdir()
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    variables = inherited | {"PYTHONPATH": packages, "BACKSTREAM_CLASS_ARCHIVE": ""}
    command: list[str | Path] = [sys.executable, publish_cases.__file__, folder, *cases]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    return found["spark"], found["hashes"]


def test_older_versions_of_spark_publish_the_same_rows(tmp_path: Path) -> None:
    _, here = publish(tmp_path / "here", "tumbling replay native")
    (expected,) = here.values()

    for version, engine in (("3.5", "native"), ("4.0", "spark")):
        packages = tmp_path / f"packages-{version}"
        run_uv("pip", "install", "--python", sys.executable, "--target", packages, f"pyspark=={version}.*")
        spark, hashes = publish(tmp_path / version, f"tumbling replay {engine}", packages=str(packages))
        assert spark.startswith(f"{version}.")
        assert hashes == {f"tumbling replay {engine}": expected}
