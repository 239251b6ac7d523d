from __future__ import annotations

from pathlib import Path

import pytest
from tests.house.machine import Machine, fresh_machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return fresh_machine(tmp_path)
