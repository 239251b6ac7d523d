"""What docker-compose.yaml, the Dockerfile and .env.example say, read without a container engine."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
IMAGE_FOLDER = "/opt/backstream"
FOREIGN = {"postgres"}
"""Services whose image is not ours."""

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if name not in FOREIGN}
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def instructions(name: str) -> list[str]:
    """The arguments of every instruction of this name in the Dockerfile."""
    return re.findall(rf"^{name} +(.*)$", DOCKERFILE, flags=re.MULTILINE)


def image_environment() -> dict[str, str]:
    """What ENV sets in the image."""
    words = [word for each in instructions("ENV") for word in shlex.split(each)]
    return dict(word.split("=", 1) for word in words)


def copied() -> list[str]:
    """What the image takes from the repository, all of it to the same place under `IMAGE_FOLDER`."""
    taken = [each.split()[:-1] for each in instructions("COPY") if not each.startswith("--from=")]
    return [*dict.fromkeys(source for sources in taken for source in sources)]


def variables() -> set[str]:
    """The variables that compose asks its user for."""
    text = (REPOSITORY / "docker-compose.yaml").read_text(encoding="utf-8")
    return set(re.findall(r"(?<!\$)\$\{(\w+)", text))


def environment(service: str) -> dict[str, str]:
    """The environment of a service, with `x` for whatever its user has to fill in."""
    told = SERVICES[service].get("environment", {})
    return {name: re.sub(r"\$\{\w+(:-)?([^}]*)\}", filled_in, str(value)) for name, value in told.items()}


def filled_in(match: re.Match[str]) -> str:
    """A variable's default, else `x`."""
    has_default, default = match.groups()
    return str(default) if has_default else "x"


def commands(service: str) -> list[list[str]]:
    """Every command line that a service runs: its command, the lines of its script, and its health check."""
    told = SERVICES[service]
    command = told.get("command", [])
    lines = [shlex.split(line) for line in command[2].splitlines()] if command[:1] == ["bash"] else [command]
    check = told.get("healthcheck", {}).get("test", ["CMD"])
    return [line for line in [*lines, check[1:]] if line]


def option(service: str, name: str) -> str:
    """The value of an option in a service's command."""
    words: list[str] = SERVICES[service]["command"]
    return words[words.index(name) + 1]
