"""A Kubernetes cluster for all tests of this folder. Only `make kubernetes` collects them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo.settings import CHECKOUT
from tests.chain.stored import settings
from tests.kubernetes.build import build
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.jobs import NAMESPACE, PLACE, write_events
from tests.lake.store import Store

from backstream.variables import CACHE_VARIABLE

collect_ignore_glob = [] if os.environ.get("KUBERNETES_TESTS") else ["test_*.py"]


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that no pod sees."""
    return tmp_path_factory.mktemp("kubernetes") / "private"


@pytest.fixture(scope="session")
def cluster(private: Path) -> Iterator[Cluster]:
    """Return a cluster whose pods see neither the folders of tasks nor this package."""
    hidden = [private, CHECKOUT / "pipelines"]
    with Cluster(build(), private.parent / "cluster", hidden, [NAMESPACE, "full", "narrow"]) as started:
        yield started


@pytest.fixture(scope="session", autouse=True)
def home(private: Path, s3: Store) -> Iterator[None]:
    """Set a home and a warehouse in the store, with the events of all datasets."""
    private.mkdir()
    write_events(private / "events", s3)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (settings(private, s3, PLACE) | {CACHE_VARIABLE: str(private / "cache")}).items():
            patch.setenv(name, value)
        yield
