"""Sequences of what people do in Airflow: after each step, all records tell one story."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Ask = Callable[..., Any]


def test_all_records_tell_one_story_after_each_step(ask: Ask) -> None:
    steps = ask("told_sequences")
    assert steps["publish"] == 7
    assert steps["publish: audited to published"] == 3
