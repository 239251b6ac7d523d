"""Check that each step that `backstream.workflow` offers is where it says."""

from __future__ import annotations

from types import ModuleType

import pytest

import backstream
from backstream import workflow


@pytest.mark.parametrize("package", [backstream, workflow])
def test_each_public_name_can_be_imported(package: ModuleType) -> None:
    assert all(callable(getattr(package, name)) for name in package.__all__)
