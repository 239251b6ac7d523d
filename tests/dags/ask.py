"""Run by the tests as a process of its own: asks Airflow a question and prints the answer as a line of JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from tests.dags import ask_dags, ask_drivers, ask_kubernetes, ask_lineage, ask_operators, ask_plan_task

QUESTIONS = {
    question.__name__: question
    for question in (
        ask_dags.dags,
        ask_dags.keeps,
        ask_dags.own_dags,
        ask_dags.parse_s,
        ask_dags.restates,
        ask_dags.teams,
        ask_dags.ticks,
        ask_drivers.drivers,
        ask_kubernetes.kubernetes,
        ask_lineage.lineage,
        ask_lineage.metrics,
        ask_operators.clusters,
        ask_operators.tasks,
        ask_plan_task.plans,
    )
}

TRIALS = {
    **dict.fromkeys(("final", "handed", "left_out", "marked", "pages", "same_ids"), "tests.dags.ask_trials"),
    **dict.fromkeys(("people", "told_sequences"), "tests.dags.ask_sequences"),
}
"""Questions of modules that import much, and other questions ask what is imported."""

if __name__ == "__main__":
    name, *values = sys.argv[1:]
    question = getattr(import_module(TRIALS[name]), name) if name in TRIALS else QUESTIONS[name]
    answer = question(*values)
    print(json.dumps(answer))  # noqa: T201 - the answer
