from __future__ import annotations

import json

from tests.house.stored_names import RECORDED, stored_names


def test_stored_names_equal_the_recorded_ones() -> None:
    """Names in files, tables and commands are read by others, so that renaming code must not change them.

    After a change that is meant, run `make accept`, and raise `FORMAT_VERSION` if homes
    or older tables can no longer be read.
    """
    assert stored_names() == json.loads(RECORDED.read_text(encoding="utf-8"))
