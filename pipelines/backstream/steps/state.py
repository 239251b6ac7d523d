"""Reading back what a run has left so far."""

from __future__ import annotations

from pathlib import Path

from backstream.core.folders import Home
from backstream.core.manifest import Manifest
from backstream.core.plan import Plan


def home_of(plan: Plan) -> Home:
    """The home a plan was made for."""
    return Home(Path(plan.home))


def manifests_of(plan: Plan) -> list[Manifest]:
    """The manifests that are there, in the order of the plan's chunks."""
    files = (plan.folder.manifest(chunk.chunk_id) for chunk in plan.chunks)
    return [Manifest.read(file) for file in files if file.exists()]
