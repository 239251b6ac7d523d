from __future__ import annotations

import pytest
from tests.house.machine import Machine


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_a_browser_that_is_there_is_taken(machine: Machine, name: str) -> None:
    there = machine.command(name, "exit 0")
    found = machine.setup("chromium")
    assert (found.returncode, found.stdout, found.stderr) == (0, f"{there}\n", "")


def test_root_gets_one_from_the_package_manager(machine: Machine) -> None:
    machine.becomes_root()
    machine.logged(
        "apk", f"printf '#!/bin/sh\\n' >{machine.folder}/bin/chromium; chmod +x {machine.folder}/bin/chromium"
    )
    found = machine.setup("chromium")
    assert (found.returncode, machine.calls) == (0, ["apk add chromium"])


def test_setup_prints_the_install_command_to_users_without_permission(machine: Machine) -> None:
    machine.command("dnf", "exit 1")
    refused = machine.setup("chromium")
    assert (refused.returncode, refused.stderr) == (
        1,
        "chromium is missing: no test can look at a page\n\nhint: sudo dnf install -y chromium\n",
    )
