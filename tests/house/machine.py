"""A machine that lacks things: a folder of commands, and nothing else is on its PATH."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TOOLS = ["sh", "bash", "env", "sed", "dirname", "rm", "ln", "mkdir", "cat", "chmod"]


@dataclass(frozen=True, slots=True)
class Machine:
    """A clone of the project and a PATH, both in one temporary folder."""

    folder: Path

    @property
    def clone(self) -> Path:
        """The clone of the project."""
        return self.folder / "clone"

    @property
    def calls(self) -> list[str]:
        """What the fake commands were called with, in order."""
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def command(self, name: str, body: str, folder: str = "bin") -> Path:
        """Put a command on the machine; `bin` is its PATH."""
        path = self.folder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def becomes_root(self) -> None:
        """From here on the user may install anything."""
        self.command("id", "echo 0")

    def logged(self, name: str, then: str = "") -> None:
        """Put a command on the machine that writes down how it was called."""
        self.command(name, f'echo "{name} $*" >>{self.folder}/calls\n{then}')

    def java(self, version: str, home: str = "", folder: str = "bin") -> Path:
        """Put a Java on the machine that tells this version, and this home when asked for its properties."""
        told = f"""echo '    java.home = {home}' >&2\necho 'openjdk version "{version}" 2025-04-15' >&2"""
        return self.command("java", told, folder)

    def setup(self, part: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `bin/setup` here, as nobody may ask a question."""
        return subprocess.run(
            ["bin/setup", *([part] if part else [])],
            cwd=self.clone,
            env={
                "PATH": str(self.folder / "bin"),
                "BACKSTREAM_JVM_ROOTS": str(self.folder / "jvm"),
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.folder / "wheels"),
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def fresh_machine(folder: Path) -> Machine:
    """A machine with a shell and a user who may install nothing: no Python, no uv, no Java."""
    fresh = Machine(folder)
    (fresh.clone / "bin").mkdir(parents=True)
    shutil.copy(REPOSITORY / "bin" / "setup", fresh.clone / "bin")
    shutil.copy(REPOSITORY / "pyproject.toml", fresh.clone)
    (folder / "bin").mkdir()
    for tool in TOOLS:
        (folder / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    fresh.command("id", "echo 1000")
    return fresh
