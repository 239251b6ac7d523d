from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.house.machine import Machine

SOME_PYTHON = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")


# --- Python ------------------------------------------------------------------------------------------------


def python(machine: Machine, name: str, version: str, *, fits: bool) -> None:
    """A Python that answers the two questions asked of it: whether it fits, and its version."""
    machine.command(name, f"case $2 in *platform*) echo {version} ;; *) exit {0 if fits else 1} ;; esac")


def test_the_first_python_that_fits_is_taken_though_python3_is_another(machine: Machine) -> None:
    python(machine, "python3", "3.9.18", fits=False)
    python(machine, "python3.12", "3.12.4", fits=True)
    assert machine.setup("python").stdout == f"{machine.folder}/bin/python3.12\n"


def test_a_real_python_fits(machine: Machine) -> None:
    (machine.folder / "bin" / "python3").symlink_to(SOME_PYTHON)
    assert machine.setup("python").stdout == f"{machine.folder}/bin/python3\n"


def test_no_fitting_python_is_a_message_that_names_the_one_found(machine: Machine) -> None:
    python(machine, "python3", "3.9.18", fits=False)
    refused = machine.setup("python")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"python must be at least 3.11 and below 3.14, got 3.9.18 ({machine.folder}/bin/python3)\n"
        "\n"
        "hint: PYTHON=/path/to/python3.13 make\n"
    )


def test_no_python_at_all_is_a_message(machine: Machine) -> None:
    assert machine.setup("python").stderr == (
        "python must be at least 3.11 and below 3.14, found none on PATH\n"
        "\n"
        "hint: PYTHON=/path/to/python3.13 make\n"
    )


# --- uv ----------------------------------------------------------------------------------------------------


def uv_wheel(machine: Machine) -> None:
    """A package named uv, to be installed by a real pip without a network."""
    path = machine.folder / "wheels" / "uv-0.9.99-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("uv-0.9.99.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 0.9.99\n")
        wheel.writestr("uv-0.9.99.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        script = zipfile.ZipInfo("uv-0.9.99.data/scripts/uv")
        script.external_attr = 0o100755 << 16  # a regular file, executable
        wheel.writestr(script, "#!/bin/sh\necho uv 0.9.99\n")
        wheel.writestr("uv-0.9.99.dist-info/RECORD", "")


def managed_python(machine: Machine, *refused: str) -> None:
    """A Python whose packages belong to the system (PEP 668), and which refuses calls that hold these words.

    Raises:
        pytest.skip.Exception: on a system whose own Python comes without pip or venv.
    """
    if subprocess.run([SOME_PYTHON, "-c", "import pip, ensurepip"], check=False, capture_output=True).returncode:
        pytest.skip("this system's Python has no pip and venv to test with")
    site = machine.folder / "site"
    site.mkdir()
    (site / "EXTERNALLY-MANAGED").write_text("[externally-managed]\nError=installed by the system\n")
    patch = f"get_path = sysconfig.get_path\nsysconfig.get_path = lambda name, *more, **also: {str(site)!r}"
    (site / "sitecustomize.py").write_text(
        "import sys, sysconfig\n"
        f"{patch} if name == 'stdlib' and sys.prefix == sys.base_prefix else get_path(name, *more, **also)\n"
    )
    refusals = "".join(f'*"{words}"*) exit 1 ;; ' for words in refused)
    machine.command("python3", f'case "$*" in {refusals}esac\nPYTHONPATH={site} exec {SOME_PYTHON} "$@"')


def test_a_uv_on_the_path_is_taken(machine: Machine) -> None:
    uv = machine.command("uv", "echo uv 0.9.1")
    found = machine.setup("uv")
    assert (found.returncode, found.stdout, found.stderr) == (0, f"{uv}\n", "")


def test_the_test_python_is_managed_as_debian_manages_its_own(machine: Machine) -> None:
    uv_wheel(machine)
    managed_python(machine)
    refused = subprocess.run(
        [machine.folder / "bin" / "python3", "-m", "pip", "install", "--no-index", "uv"],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert refused.returncode == 1
    assert "error: externally-managed-environment" in refused.stderr


def test_a_managed_python_with_venv_gives_uv_its_own_folder(machine: Machine) -> None:
    uv_wheel(machine)
    managed_python(machine)
    installed = machine.setup("uv")
    assert (installed.returncode, installed.stdout) == (0, f"{machine.clone}/.tools/uv/bin/uv\n")
    assert installed.stderr == f"installing uv into .tools with {machine.folder}/bin/python3\n"
    again = machine.setup("uv")
    assert (again.stdout, again.stderr) == (installed.stdout, "")


def test_a_managed_python_without_venv_gives_uv_a_target_folder(machine: Machine) -> None:
    uv_wheel(machine)
    managed_python(machine, "ensurepip", "-m venv")
    installed = machine.setup("uv", PIP_USER="1", PIP_REQUIRE_VIRTUALENV="1")
    assert (installed.returncode, installed.stdout) == (0, f"{machine.clone}/.tools/uv-lib/bin/uv\n")


def bare_python(machine: Machine, body: str = "exit 1") -> None:
    """A Python that fits, and does `body` when asked for venv or pip."""
    machine.command("python3", f'case "$*" in *version_info*) exit 0 ;; esac\n{body}')


def test_a_python_without_venv_and_pip_is_a_message_with_the_exact_command(machine: Machine) -> None:
    bare_python(machine)
    machine.logged("apt-get")
    refused = machine.setup("uv")
    python3 = machine.folder / "bin" / "python3"
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"installing uv into .tools with {python3}\n"
        f"uv is missing, and this Python has neither venv nor pip to install it with ({python3})\n"
        "\n"
        "hint: sudo apt-get update && sudo apt-get install -y python3-venv\n"
    )


def test_root_gets_venv_from_the_package_manager(machine: Machine) -> None:
    machine.becomes_root()
    there = machine.folder / "venv-is-there"
    makes_uv = 'printf "#!/bin/sh\\n" >.tools/uv/bin/uv; chmod +x .tools/uv/bin/uv'
    makes_pip = f"printf '#!/bin/sh\\n{makes_uv}\\n' >.tools/uv/bin/python; chmod +x .tools/uv/bin/python"
    bare_python(
        machine, f'[ -e {there} ] || exit 1\n[ "$2" != venv ] || {{ mkdir -p .tools/uv/bin; {makes_pip}; }}'
    )
    machine.logged("apt-get", f'[ "$1" = update ] || echo >{there}')
    installed = machine.setup("uv")
    assert (installed.returncode, installed.stdout) == (0, f"{machine.clone}/.tools/uv/bin/uv\n")
    assert machine.calls == ["apt-get update -qq", "apt-get install -y --no-install-recommends python3-venv"]


def test_a_failed_download_of_uv_is_shown(machine: Machine) -> None:
    without_venv = 'case "$*" in *ensurepip*) exit 1 ;; *--target*) echo no route >&2; exit 1 ;; esac'
    machine.command("python3", without_venv)
    refused = machine.setup("uv")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"installing uv into .tools with {machine.folder}/bin/python3\n"
        "no route\n"
        "uv could not be installed: see above\n"
    )


# --- the whole ---------------------------------------------------------------------------------------------


def test_a_new_clone_is_synchronised_from_the_lock_with_the_python_found(machine: Machine) -> None:
    machine.java("17.0.15")
    machine.logged("uv", 'echo "downloads: $UV_PYTHON_DOWNLOADS, venv: $UV_PROJECT_ENVIRONMENT" >&2')
    python(machine, "python3", "3.12.4", fits=True)
    done = machine.setup()
    assert (done.returncode, done.stdout) == (0, "")
    assert machine.calls == [
        "uv --version",
        f"uv sync --locked --all-extras --compile-bytecode --python {machine.folder}/bin/python3",
    ]
    assert done.stderr == "installing the locked packages into .venv (log: .tools/setup.log)\n"
    log = machine.folder / "clone" / ".tools" / "setup.log"
    assert log.read_text() == "downloads: never, venv: .venv\n"


def test_packages_that_cannot_be_installed_end_with_the_end_of_the_log_and_its_name(machine: Machine) -> None:
    machine.java("17.0.15")
    machine.command(
        "uv",
        'case $1 in sync) n=0; while [ $n -lt 225 ]; do n=$((n + 1)); echo "+ package $n"; done; exit 2 ;; esac',
    )
    python(machine, "python3", "3.12.4", fits=True)
    done = machine.setup()
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (1, 18)
    assert lines[1] == "+ package 211"
    assert lines[-1].startswith("the packages were not installed; the whole log is /")
    assert lines[-1].endswith("/clone/.tools/setup.log")


def test_setup_only_checks_a_prepared_clone_and_prints_nothing(machine: Machine) -> None:
    machine.java("17.0.15")
    machine.logged("uv")
    machine.command("python", "exit 0", folder="clone/.venv/bin")
    done = machine.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.calls == ["uv --version", "uv sync --locked --all-extras --check --quiet"]


def test_a_clone_behind_its_lock_is_synchronised_with_the_python_it_has(machine: Machine) -> None:
    machine.java("17.0.15")
    machine.logged("uv", 'case "$*" in *--check*) exit 1 ;; esac')
    machine.command("python", "exit 0", folder="clone/.venv/bin")
    assert machine.setup().returncode == 0
    assert machine.calls[1:] == [
        "uv sync --locked --all-extras --check --quiet",
        "uv sync --locked --all-extras --compile-bytecode",
    ]


def test_without_java_nothing_is_synchronised(machine: Machine) -> None:
    machine.logged("uv")
    assert machine.setup().returncode == 1
    assert machine.calls == ["uv --version"]


def test_all_that_is_missing_is_named_at_once(machine: Machine) -> None:
    bare_python(machine)
    machine.logged("dnf")
    refused = machine.setup()
    python3 = machine.folder / "bin" / "python3"
    assert refused.returncode == 1
    assert refused.stderr == (
        "java must be 17 or newer, found none in JAVA_HOME or on PATH\n"
        "\n"
        "hint: sudo dnf install -y java-21-openjdk-headless\n"
        f"installing uv into .tools with {python3}\n"
        f"uv is missing, and this Python has neither venv nor pip to install it with ({python3})\n"
        "\n"
        "hint: sudo dnf install -y python3-pip\n"
    )


def test_a_failed_synchronisation_fails_the_whole(machine: Machine) -> None:
    machine.java("17.0.15")
    machine.command("uv", '[ "$1" = --version ] || { echo the lock is out of date >&2; exit 2; }')
    machine.command("python", "exit 0", folder="clone/.venv/bin")
    failed = machine.setup()
    assert failed.returncode == 1
    assert "\nthe lock is out of date\n\nthe packages were not installed; the whole log is /" in failed.stderr


def test_an_unknown_part_is_refused(machine: Machine) -> None:
    refused = machine.setup("flink")
    assert (refused.returncode, refused.stderr) == (
        1,
        "no such part: flink\n\nhint: bin/setup [python|uv|java|make|chromium]\n",
    )
