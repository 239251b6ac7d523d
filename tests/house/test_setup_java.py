from __future__ import annotations

import pytest
from tests.house.machine import Machine


@pytest.mark.parametrize("version", ["17", "17.0.15", "21-ea", "25.0.1"])
def test_a_java_of_17_or_newer_on_the_path_is_taken(machine: Machine, version: str) -> None:
    java = machine.java(version)
    found = machine.setup("java")
    assert (found.returncode, found.stdout, found.stderr) == (0, f"{java}\n", "")


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", "8"), ("11.0.22", "11"), ("16-ea", "16")])
def test_an_older_java_is_named_with_where_it_is(machine: Machine, version: str, major: str) -> None:
    java = machine.java(version)
    refused = machine.setup("java")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"java must be 17 or newer, got {major} ({java})\n"
        "\n"
        "hint: install a Java 17 runtime and set JAVA_HOME to its folder\n"
    )


def apt_carries(machine: Machine, package: str) -> None:
    """Both Debians know both names, but each has one version to install."""
    machine.command("apt-cache", f'[ "$1 $2" != "madison {package}" ] || echo "$2 | 1.0 | main"')


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "sudo apt-get update && sudo apt-get install -y openjdk-21-jre-headless"),
        ("dnf", "sudo dnf install -y java-21-openjdk-headless"),
        ("yum", "sudo yum install -y java-17-openjdk-headless"),
        ("apk", "sudo apk add openjdk17-jre-headless"),
        ("pacman", "sudo pacman -Sy --needed --noconfirm jre17-openjdk-headless"),
        ("zypper", "sudo zypper install -y java-17-openjdk-headless"),
    ],
)
def test_no_java_and_no_right_to_install_one_is_a_message_with_the_exact_command(
    machine: Machine, manager: str, command: str
) -> None:
    machine.logged(manager)
    apt_carries(machine, "openjdk-21-jre-headless")  # as Debian 13 does
    refused = machine.setup("java")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (f"java must be 17 or newer, found none in JAVA_HOME or on PATH\n\nhint: {command}\n")
    assert machine.calls == []


def test_no_java_and_no_package_manager_is_a_message_without_a_command(machine: Machine) -> None:
    refused = machine.setup("java")
    assert refused.returncode == 1
    assert refused.stderr == (
        "java must be 17 or newer, found none in JAVA_HOME or on PATH\n"
        "\n"
        "hint: install a Java 17 runtime and set JAVA_HOME to its folder\n"
    )


def apt_that_installs_java(machine: Machine) -> None:
    java = machine.folder / "bin" / "java"
    told = r"#!/bin/sh\necho openjdk version \\\"17.0.15\\\" >&2\n"
    machine.logged("apt-get", f'[ "$1" = update ] || {{ printf "{told}" >{java}; chmod +x {java}; }}')
    apt_carries(machine, "openjdk-17-jre-headless")  # as Debian 12 does


def test_root_gets_java_from_the_package_manager_without_a_question(machine: Machine) -> None:
    machine.becomes_root()
    apt_that_installs_java(machine)
    installed = machine.setup("java")
    assert (installed.returncode, installed.stdout) == (0, f"{machine.folder}/bin/java\n")
    assert machine.calls == [
        "apt-get update -qq",
        "apt-get install -y --no-install-recommends openjdk-17-jre-headless",
    ]
    assert machine.setup("java").stderr == ""
    assert machine.calls == [
        "apt-get update -qq",
        "apt-get install -y --no-install-recommends openjdk-17-jre-headless",
    ]


def test_setup_uses_sudo_that_needs_no_password(machine: Machine) -> None:
    apt_that_installs_java(machine)
    machine.logged("sudo", 'shift\n[ "$1" = true ] || exec "$@"')
    assert machine.setup("java").returncode == 0
    update, install = "apt-get update -qq", "apt-get install -y --no-install-recommends openjdk-17-jre-headless"
    assert machine.calls == [
        "sudo -n true",
        f"sudo -n env DEBIAN_FRONTEND=noninteractive {update}",
        update,
        f"sudo -n env DEBIAN_FRONTEND=noninteractive {install}",
        install,
    ]


def test_setup_does_not_use_sudo_that_needs_a_password(machine: Machine) -> None:
    apt_that_installs_java(machine)
    machine.logged("sudo", "exit 1")
    assert machine.setup("java").stderr == (
        "java must be 17 or newer, found none in JAVA_HOME or on PATH\n"
        "\n"
        "hint: sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless\n"
    )
    assert machine.calls == ["sudo -n true"]


def test_a_package_manager_that_fails_is_followed_by_the_message(machine: Machine) -> None:
    machine.becomes_root()
    machine.logged("dnf", "echo no such package >&2; exit 1")
    refused = machine.setup("java")
    assert refused.returncode == 1
    assert refused.stderr == (
        "installing java-21-openjdk-headless with dnf\n"
        "no such package\n"
        "java must be 17 or newer, found none in JAVA_HOME or on PATH\n"
        "\n"
        "hint: sudo dnf install -y java-21-openjdk-headless\n"
    )


def test_setup_runs_homebrew_without_sudo(machine: Machine) -> None:
    machine.logged("brew", "exit 1")
    refused = machine.setup("java")
    assert refused.stderr.endswith("\n\nhint: brew install openjdk@17\n")
    assert machine.calls == ["brew install openjdk@17"]


def test_an_old_java_home_is_overruled_by_a_newer_java_on_the_path(machine: Machine) -> None:
    old = machine.java("11.0.2", folder="old/bin").parents[1]
    new_home = machine.java("21.0.1", folder="new/bin").parents[1]
    machine.java("21.0.1", home=str(new_home))
    assert machine.setup("java", JAVA_HOME=str(old)).returncode == 0
    assert (machine.clone / ".tools" / "java").readlink() == new_home


def test_a_java_that_is_neither_in_java_home_nor_on_the_path_is_found(machine: Machine) -> None:
    home = machine.folder / "jvm" / "java-17"
    machine.java("17.0.15", home=str(home), folder="jvm/java-17/bin")
    found = machine.setup("java")
    assert (found.returncode, found.stdout, found.stderr) == (0, f"{home}/bin/java\n", "")
    again = machine.setup("java")
    assert again.stdout == f"{machine.clone}/.tools/java/bin/java\n"


def test_setup_removes_the_link_to_java_if_java_is_on_path_again(machine: Machine) -> None:
    home = machine.folder / "jvm" / "java-17"
    machine.java("17.0.15", home=str(home), folder="jvm/java-17/bin")
    machine.setup("java")
    machine.java("21.0.1")
    assert machine.setup("java").stdout == f"{machine.folder}/bin/java\n"
    assert not (machine.clone / ".tools" / "java").exists()
