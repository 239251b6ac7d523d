"""Run commands of Airflow in one process, and print what the last ones list, as JSON."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from typing import Any

from airflow.cli.cli_parser import get_parser


def answer(*command: str) -> Any:
    """Return the JSON that a command prints."""
    printed = io.StringIO()
    arguments = get_parser().parse_args([*command, "--output", "json"])
    with redirect_stdout(printed):
        arguments.func(arguments)
    return json.loads(printed.getvalue().splitlines()[-1])


if __name__ == "__main__":
    for command in (["db", "migrate"], ["dags", "reserialize"]):
        arguments = get_parser().parse_args(command)
        arguments.func(arguments)
    print(json.dumps({"dags": answer("dags", "list"), "plugins": answer("plugins")}))  # noqa: T201 - the answer
