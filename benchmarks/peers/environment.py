"""Environments for peers. The project's own environment excludes their packages."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
_ERROR_LINES = 15


class PeerError(Exception):
    """The error for a peer that cannot run here. The message has the reason. All other jobs still run."""


def environment(requirements: Path, folder: Path) -> Path:
    """Return the Python of an environment with exactly these requirements. Create the environment on first use.

    Args:
        requirements: a file with one pinned package per line.
        folder: the folder of all environments. Changed requirements lead to a new environment.

    Raises:
        PeerError: if uv cannot create the environment. The message has the output of uv.
    """
    versions = f"{sys.version_info[:2]}\n{requirements.read_text(encoding='utf-8')}"
    target = folder / f"{requirements.stem}-{hashlib.sha256(versions.encode()).hexdigest()[:12]}"
    python, marker = target / "bin" / "python", target / "complete"
    if marker.exists():
        return python
    shutil.rmtree(target, ignore_errors=True)
    uv = _run_command([str(CHECKOUT / "bin" / "setup"), "uv"], requirements).splitlines()[-1]
    _run_command([uv, "venv", "--quiet", "--python", sys.executable, str(target)], requirements)
    _run_command([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(requirements)], requirements)
    marker.touch()
    return python


def _run_command(command: list[str], requirements: Path) -> str:
    process = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if process.returncode:
        details = "\n".join(f"  {line}" for line in process.stderr.strip().splitlines()[-_ERROR_LINES:])
        msg = (
            f"no environment could be made from {requirements}\n{details}\n\n"
            "hint: it needs the package index, and wheels for this Python; --peers none leaves it out"
        )
        raise PeerError(msg)
    return process.stdout.strip()
