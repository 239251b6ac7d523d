from __future__ import annotations

import json
from pathlib import Path

from tests.house.stored_names import stored_names

RECORDED = Path(__file__).with_name("stored_names.json")


def test_stored_names_equal_the_recorded_ones() -> None:
    """Names in files, tables and commands are read by others, so that renaming code must not change them.

    After a change that is meant, replace the literals of `stored_names.json`, and raise `FORMAT_VERSION` if homes
    or tables of before cannot be read any more.
    """
    assert stored_names() == json.loads(RECORDED.read_text(encoding="utf-8"))
