"""A call of Java in a definition that ends the Java of Spark ends a command with one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backstream.spark.java_end import list_java_calls

DEFINITION = """
name = "ends"
[source]
path = "{folder}/in"
format = "json"
event_time = "at"
columns = {{ at = "timestamp", n = "int" }}
{setting}
[window]
kind = "tumbling"
size = "1h"
[aggregates]
highest = "max(n)"
"""
EXIT = "java_method('java.lang.System', 'exit', n)"
RANGE = ("--since", "2024-03-01", "--until", "2024-03-02")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "setting"),
    [("source.where", f'where = "{EXIT} is null"'), ("source.derive.d", f'derive = {{ d = "{EXIT}" }}')],
)
@pytest.mark.parametrize("command", [("run", *RANGE), ("check", "--sample", "5")])
def test_the_end_of_java_is_one_sentence(tmp_path: Path, key: str, setting: str, command: tuple[str, ...]) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"at": f"2024-03-01T0{n}:00:00Z", "n": n} for n in range(1, 4)]
    (tmp_path / "in/a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    definition = tmp_path / "ends.toml"
    definition.write_text(DEFINITION.format(folder=tmp_path, setting=setting))
    name, *options = command

    # Java ends with the process that started it, so the command needs a process of its own.
    ended = subprocess.run(
        [sys.executable, "-m", "backstream.cli", name, str(definition), *options],
        env={**os.environ, "BACKSTREAM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    message = ended.stderr.partition("error: ")[2]
    assert message.startswith("the Java of Spark ended with status ")
    assert f"{key} calls java_method ({definition})" in message
    assert len(message.splitlines()) == 3


def test_calls_of_java_are_found_by_their_key() -> None:
    content = {
        "source": {"where": "try_reflect ('a', 'b')", "sources": [{"derive": {"d": "1 + REFLECT('a', 'b')"}}]},
        "aggregates": {"reflect": "max(reflect)", "v": "max(my_reflect(n))"},
    }

    assert dict(list_java_calls(content)) == {
        "source.where": "try_reflect",
        "source.sources[0].derive.d": "REFLECT",
    }
