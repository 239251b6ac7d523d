"""docs/own-events.md is run line by line, and each command prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from backstream.source.archive.preset_names import Preset
from backstream.variables import CATALOG_VARIABLE, HEAP_VARIABLE

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "own-events.md").read_text(encoding="utf-8")
SCRIPT = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
RUN_ID = re.compile(r"cli\.[0-9a-f]{12}")


def commands() -> Iterator[tuple[str, str]]:
    """Yield each command of the page with the output that the page shows."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in block.split("$ ")[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


def pattern(shown: str) -> str:
    """Return the pattern of an output: `...` stands for the rest of a line, and for lines if it is alone."""
    lines = shown.splitlines(keepends=True)
    whole = "".join("\0" if line == "...\n" else line for line in lines)
    return re.escape(whole).replace(re.escape("\0"), r"(?:.*\n)*?").replace(re.escape("..."), ".*")


def test_each_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    assert SCRIPT
    (tmp_path / "make_orders.py").write_text(SCRIPT[1])
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        HEAP_VARIABLE: os.environ[HEAP_VARIABLE],
        CATALOG_VARIABLE: "",
    }
    run = []

    for command, shown in commands():
        ended = subprocess.run(  # noqa: S602 - the commands are those of our own page
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        printed = "\n".join(line.rstrip() for line in RUN_ID.sub("cli.RUN", ended.stdout).splitlines())
        assert ended.returncode == 0, (command, ended.stderr)
        if shown:
            assert re.fullmatch(pattern(shown), f"{printed}\n"), f"$ {command}\n{printed}\n--- shown\n{shown}"
        run.append(command.split()[:2])

    subcommands = [name for program, name in run if program == "backstream"]
    assert subcommands == ["init", "check", "plan", "run", "show", "stale", "run", "diff", "stale"]


def test_the_page_on_archives_lists_all_presets() -> None:
    page = (DOCS / "archives.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == [preset.value for preset in Preset]
