"""Environments of peers whose packages have no place in the project's own."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
_LINES_TOLD = 15


class PeerError(Exception):
    """A peer cannot be run here. The message says why; everything else can still be measured."""


def environment(requirements: Path, folder: Path) -> Path:
    """The Python of an environment with exactly these requirements, made on first use.

    Args:
        requirements: pinned, one package a line.
        folder: where environments are kept; one whose requirements have changed is made anew.

    Raises:
        PeerError: when it cannot be made, with what uv said.
    """
    pinned = f"{sys.version_info[:2]}\n{requirements.read_text(encoding='utf-8')}"
    target = folder / f"{requirements.stem}-{hashlib.sha256(pinned.encode()).hexdigest()[:12]}"
    python, done = target / "bin" / "python", target / "complete"
    if done.exists():
        return python
    shutil.rmtree(target, ignore_errors=True)
    uv = _called([str(CHECKOUT / "bin" / "setup"), "uv"], requirements).splitlines()[-1]
    _called([uv, "venv", "--quiet", "--python", sys.executable, str(target)], requirements)
    _called([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(requirements)], requirements)
    done.touch()
    return python


def _called(command: list[str], requirements: Path) -> str:
    told = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if told.returncode:
        said = "\n".join(f"  {line}" for line in told.stderr.strip().splitlines()[-_LINES_TOLD:])
        msg = (
            f"no environment could be made from {requirements}\n{said}\n\n"
            "hint: it needs the package index, and wheels for this Python; --peers none leaves it out"
        )
        raise PeerError(msg)
    return told.stdout.strip()
