from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def told(ask: Ask) -> Any:
    """The data intervals about the end of February 2024, by schedule."""
    return ask("ticks")


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("@daily", ["2024-02-28 to 2024-02-29", "2024-02-29 to 2024-03-01"]),
        ("0 0 1 * *", ["2024-02-01 to 2024-03-01"]),
        # A range may begin within a data interval, and end within one.
        ("0 0 * * 4", ["2024-02-22 to 2024-02-29", "2024-02-29 to 2024-03-07"]),
    ],
)
def test_the_data_intervals_of_a_range_are_those_that_it_touches(
    told: Any, schedule: str, expected: list[str]
) -> None:
    assert told[schedule] == expected
