"""Sequences of what people do, told or random, and what must hold after each step of the machine."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import hypothesis
from hypothesis.stateful import run_state_machine_as_test
from tests.dags.ask_machine import SLOTS, People, Slot

Sequences = Sequence[Sequence[tuple[str, dict[str, Any]]]]
SAME, OTHER = SLOTS[0], SLOTS[2]
BACK: Slot = ("backfill", "same", "")
STARTED = {"mode": "as defined", "override": False, "left_out": "nothing", "approval": "never"}
NOT_REPLAYED = STARTED | {"slot": BACK, "days": (1, 3), "left_out": "replay", "last": "replay", "is_raw": False}
TOLD: Sequences = [
    [  # The approval is marked as success; the question that follows the failure is open, although it was fast.
        ("start", {"slot": SAME, "days": (1, 3), "override": False, "left_out": "answer", "last": "audit"}),
        ("repeat", {"slot": SAME, "task": "publish"}),
        ("repeat", {"slot": SAME, "task": "ask"}),
        ("answer", {"slot": SAME, "is_approved": True}),
        ("repeat", {"slot": SAME, "task": "publish"}),
        ("edit_suite", {"verdict": "fail"}),
        ("repeat", {"slot": SAME, "task": "audit"}),
        ("roll_back", {"back": 0}),
        ("repeat", {"slot": SAME, "task": "publish"}),
        ("edit_definition", {"when": "restatement", "delay": '"10m"'}),
        ("start", {"slot": OTHER, "days": (1, 2), "override": True, "left_out": "nothing", "last": "report"}),
        ("change_files", {"name": "one", "often": 2, "is_there": True}),
        ("start", {"slot": SAME, "days": (1, 3), "override": True, "left_out": "ask", "last": "report"}),
        ("go_on", {"slot": SAME, "left_out": "nothing"}),
        ("repeat", {"slot": OTHER, "task": "publish"}),
    ],
    [  # The commit of a killed run counts at once, and the next one records it; a rollback is undone.
        ("begin", STARTED | {"slot": SAME, "days": (1, 3), "last": "audit", "is_raw": True}),
        ("kill", {"slot": SAME, "death": "before the ledger row", "is_retried": False}),
        ("look", {"day": 1}),
        ("start", STARTED | {"slot": OTHER, "days": (1, 2), "last": "report"}),
        ("repeat", {"slot": SAME, "task": "publish"}),
        ("look", {"day": 1}),
        ("roll_back", {"back": 0}),
        ("roll_back", {"back": 0}),
        ("look", {"day": 1}),
    ],
    [  # A task of a failed run that Airflow has ended is killed as it records its next failure.
        (
            "begin",
            STARTED | {"slot": SAME, "days": (1, 2), "left_out": "audit", "last": "publish", "is_raw": False},
        ),
        ("end", {"slot": SAME, "is_end": True}),
        ("kill", {"slot": SAME, "death": "before the ledger row", "is_retried": False}),
    ],
    [  # The same plan is made again after `publish` was killed without any chunk.
        (
            "begin",
            STARTED | {"slot": BACK, "days": (1, 3), "left_out": "replay", "last": "replay", "is_raw": False},
        ),
        ("kill", {"slot": BACK, "death": "before the ledger row", "is_retried": False}),
        ("change_files", {"name": "two", "often": 2, "is_there": False}),
        ("clear_plan", {"slot": BACK, "replan": True}),
    ],
    [  # A Dag run that Airflow had ended makes another plan: the run of the earlier one stays interrupted.
        ("begin", STARTED | {"slot": SAME, "days": (1, 3), "last": "replay", "is_raw": False}),
        ("end", {"slot": SAME, "is_end": True}),
        ("edit_definition", {"when": "never", "delay": '"20m"'}),
        ("clear_plan", {"slot": SAME, "replan": True}),
    ],
]


@contextmanager
def quick() -> Iterator[None]:
    """Keep the results of expectations, which depend on their column only: the library takes most of the time."""
    from backstream.quality import gx_adapter

    known: dict[str, Any] = {}

    class Frames:
        def __init__(self, frames: Any) -> None:
            self.frames = frames

        def validate(self, name: str, kind: str, kwargs: Any) -> Any:
            key = json.dumps([name, kind, kwargs, self.frames[name][kwargs["column"]].tolist()], default=str)
            if key not in known:
                known[key] = real(self.frames).validate(name, kind, kwargs)
            return known[key]

    real = gx_adapter.ExpectationFrames
    with patch.object(gx_adapter, "ExpectationFrames", Frames):
        yield


def told_sequences() -> Any:
    """Try the sequences of `TOLD`, and return the number of steps and changes of statuses."""
    People.steps.clear()
    for sequence in TOLD:
        machine = People()
        for name, values in sequence:
            getattr(machine, name)(**values)
            machine.all_holds()
        machine.teardown()
    return dict(People.steps)


def people(sequences: str, steps: str, seed: str) -> Any:
    """Try random sequences of steps, and return the number of executed tasks of each kind."""
    import structlog

    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    People.steps.clear()
    chosen = hypothesis.settings(
        max_examples=int(sequences),
        stateful_step_count=int(steps),
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if os.environ.get("SHRINK") else [])],
    )
    with quick():
        run_state_machine_as_test(hypothesis.seed(int(seed))(People), settings=chosen)
    return dict(People.steps)
