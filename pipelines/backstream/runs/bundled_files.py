"""Locate the files that come with the package: suites, DAG files, and the definition of the demo."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

_IN_CHECKOUT = {"dags": "dags", "definitions": "pipelines/definitions", "expectations": "expectations"}
"""The folders of the checkout, which an installed package has as `backstream/bundled/<name>`."""


def bundled_folder(name: str) -> Path:
    """Return a folder of files that come with the package: `dags`, `definitions`, or `expectations`."""
    package = Path(str(files("backstream")))
    installed = package / "bundled" / name
    return installed if installed.is_dir() else package.parents[1] / _IN_CHECKOUT[name]
