"""Sequences of what people do in Airflow: after each step, all records tell one story."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]


def test_all_records_tell_one_story_after_each_step(ask: Ask) -> None:
    steps = ask("told_sequences")
    assert steps["publish"] == 7
    assert steps["publish: audited to published"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_all_records_tell_one_story_after_random_steps(ask: Ask, seed: int) -> None:
    steps = ask("people", "12", "30", str(seed))
    assert min(steps["plan"], steps["replay"], steps["audit"], steps["publish"]) > 10
    assert steps["publish: audited to published"] > 3
