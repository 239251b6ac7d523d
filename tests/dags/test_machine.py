"""Sequences of what people do in Airflow: after each step, all records tell one story."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]


def test_all_records_tell_one_story_after_each_step(ask: Ask) -> None:
    steps = ask("told_sequences")
    assert steps["publish"] == 13
    assert steps["publish: audited to published"] == 5
    assert steps["rollback undone"] == 1
    assert steps["publish: failed to interrupted"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (4, 8))])
def test_all_records_tell_one_story_after_random_steps(ask: Ask, seed: int) -> None:
    steps = ask("people", "17", "30", str(seed))
    assert steps["steps"] > 400
    assert min(steps["plan"], steps["replay"], steps["audit"], steps["publish"], steps["looked"]) > 10
    assert steps["publish: audited to published"] > 3
