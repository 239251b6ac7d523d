"""The failing rows of a check begin with the one that is farthest from its limits."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from backstream.quality.gx_adapter import ExpectationResult
from backstream.quality.run_parts import sort_by_deviation


@pytest.mark.parametrize(
    ("limits", "first"),
    [
        ({"min_value": 40}, 1),
        ({"max_value": 30}, 90),
        ({"min_value": 40, "max_value": 60}, 1),
        ({"min_value": 30, "max_value": 50}, 90),
        ({}, 90),
    ],
)
def test_the_row_farthest_from_the_limits_is_first(limits: dict[str, Any], first: int) -> None:
    failing = pd.DataFrame({"events": [39, 1, 90]})
    result = ExpectationResult(is_met=False, unexpected=3, elements=48, failing=failing)

    assert sort_by_deviation(result, {"column": "events", **limits})["events"].iloc[0] == first


def test_rows_with_equal_deviations_stay_in_order() -> None:
    failing = pd.DataFrame({"events": [7, 3, 3], "window": ["a", "b", "c"]})
    result = ExpectationResult(is_met=False, unexpected=3, elements=48, failing=failing)

    rows = sort_by_deviation(result, {"column": "events", "min_value": 40})

    assert rows["window"].tolist() == ["b", "c", "a"]
