"""Run by itself, with the environment of a compose service: puts questions to the Airflow that is locked.

Reads `{"commands": [[word, ...], ...], "settings": [[section, key], ...]}` from standard input and prints
`{"refused": {command: why}, "unknown_settings": [...], "spark_master": ..., "connection": ..., "pool": ...}`.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from airflow.cli.cli_parser import get_parser
from airflow.configuration import conf
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from backstream.orchestration.dag_options import CONNECTION_ID, POOL


def refusals(commands: list[list[str]]) -> dict[str, str]:
    """What Airflow's own parser says against each command that it does not accept."""
    refused = {}
    for command in commands:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                get_parser().parse_args(command)
        except SystemExit:
            refused[" ".join(command)] = said.getvalue().strip().splitlines()[-1]
    return refused


def unknown(settings: list[list[str]]) -> list[str]:
    """The settings that Airflow and its providers do not describe."""
    described = conf.configuration_description
    return [
        f"{section}.{key}"
        for section, key in settings
        if key not in described.get(section, {"options": {}})["options"]
    ]


asked = json.load(sys.stdin)
answers = {
    "refused": refusals(asked["commands"]),
    "unknown_settings": unknown(asked["settings"]),
    # The hook has no public word for the master that it would hand to spark-submit.
    "spark_master": SparkSubmitHook(conn_id=CONNECTION_ID)._resolve_connection()["master"],  # noqa: SLF001 - see above
    "connection": CONNECTION_ID,
    "pool": POOL,
}
print("answers:", json.dumps(answers))  # noqa: T201 - this is its output
