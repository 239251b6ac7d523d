"""The image of the Dockerfile is built, is not too large, and works. `make image` runs this where a builder is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from demo.settings import CHECKOUT


def find_builder() -> str:
    """Return the program that builds images here; empty if there is none. Docker's client needs its daemon."""
    for name in ("docker", "buildah"):
        if shutil.which(name) and not subprocess.run([name, "info"], capture_output=True, check=False).returncode:
            return name
    return ""


BUILDER = find_builder()
IMAGE = "backstream-test"
LIMIT_GB = 2.0
FILE = CHECKOUT / "Dockerfile"
CERTIFICATES = os.environ.get("SSL_CERT_FILE")
"""The certificates of a network whose proxy has its own authority: programs in a build trust it, too."""
_UNITS_GB = {"kB": 1e-6, "MB": 1e-3, "GB": 1.0}
PREPARE = "airflow db migrate >/dev/null && airflow pools set spark 2 jobs >/dev/null"
SETTINGS = {
    "AIRFLOW__CORE__DAGS_FOLDER": "/opt/backstream/dags",
    "AIRFLOW__CORE__PLUGINS_FOLDER": "/opt/backstream/plugins",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
    "SPARK_LOCAL_HOSTNAME": "localhost",  # buildah gives containers a name that nothing resolves
    "AIRFLOW_CONN_BACKSTREAM_SPARK": '{"conn_type": "spark", "host": "local[2]"}',
}

pytestmark = [
    pytest.mark.image,
    pytest.mark.skipif(not BUILDER, reason="neither docker nor buildah can build here"),
]
Run = Callable[[str], str]
"""Run a shell command in a container, and return its output."""


def call(*command: str | Path, cwd: Path = CHECKOUT) -> str:
    """Run a command, and return its standard output."""
    variables = os.environ | {"BUILDAH_ISOLATION": "chroot"}
    ended = subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=3_000
    )
    assert ended.returncode == 0, ended.stdout[-2_000:] + ended.stderr[-4_000:]
    return ended.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build the image; return a function that runs a command in a new container of it."""
    if BUILDER == "docker":
        call("docker", "build", "--tag", IMAGE, ".")
        variables = [word for name, value in SETTINGS.items() for word in ("--env", f"{name}={value}")]
        return lambda command: call("docker", "run", "--rm", *variables, IMAGE, "bash", "-euc", command)
    base = FILE.read_text().partition("FROM ")[2].split()[0]
    if base not in call("buildah", "images", "--format", "{{.Name}}:{{.Tag}}"):
        make_base(base, tmp_path_factory.mktemp("base"))
    call("buildah", "bud", "--pull-never", "--layers", "--tag", IMAGE, ".")

    def run_command(command: str) -> str:
        container = call("buildah", "from", "--pull-never", f"localhost/{IMAGE}").strip()
        try:
            variables = [word for name, value in SETTINGS.items() for word in ("--env", f"{name}={value}")]
            return call("buildah", "run", *variables, container, "--", "bash", "-euc", command)
        finally:
            call("buildah", "rm", container)

    return run_command


def make_base(name: str, folder: Path) -> None:
    """Make the image that the Dockerfile begins with from packages of Debian, since no registry is needed then."""
    if shutil.which("mmdebstrap") is None:
        call("buildah", "pull", name)
        return
    archive = folder / "base.tar"
    call("mmdebstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", archive)
    container = call("buildah", "from", "scratch").strip()
    call("buildah", "add", container, archive, "/")
    install = "apt-get update && apt-get install -y --no-install-recommends python3 python3-pip python3-venv"
    link = "ln -sf python3 /usr/bin/python; rm -rf /usr/lib/python3*/EXTERNALLY-MANAGED"
    # Packages need these folders, but not the files in them.
    clean = (
        "find /usr/share/doc /usr/share/man /usr/share/locale /var/lib/apt/lists /var/cache/apt -type f -delete"
    )
    call("buildah", "run", container, "--", "sh", "-ec", f"{install}; {link}; {clean}")
    if CERTIFICATES:
        place = "/usr/local/share/certificates.crt"
        call("buildah", "copy", container, CERTIFICATES, place)
        call("buildah", "config", "--env", f"SSL_CERT_FILE={place}", "--env", f"PIP_CERT={place}", container)
    call("buildah", "commit", "--rm", container, name)


def test_the_image_is_not_larger_than_its_limit(run: Run) -> None:
    run("true")

    if BUILDER == "docker":
        size_gb = int(call("docker", "image", "inspect", "--format", "{{.Size}}", IMAGE)) / 1e9
    else:
        found = json.loads(call("buildah", "images", "--json", f"localhost/{IMAGE}"))[0]["size"]
        size_gb = float(found.split()[0]) * _UNITS_GB[found.split()[1]]
    assert 0.5 < size_gb <= LIMIT_GB


def test_the_user_of_the_image_is_not_root(run: Run) -> None:
    assert run("id -u").strip() == "50000"


def test_every_part_of_the_installation_is_all_right(run: Run) -> None:
    found = run(f"{PREPARE}; backstream doctor")

    lines = [re.match(r"(\w+) +(\w+)", line) for line in found.splitlines()]
    assert {match[1] for match in lines if match} == {"ok"}, found
    assert {"python", "java", "spark", "native", "airflow"} <= {match[2] for match in lines if match}


def test_the_image_publishes(run: Run) -> None:
    program = (CHECKOUT / "tests/package/publish_cases.py").read_text()

    found = run(
        f"cat >/tmp/cases.py <<'END'\n{program}\nEND\nmkdir /tmp/cases\n"
        "python /tmp/cases.py /tmp/cases 'tumbling replay native' 'tumbling replay spark'"
    )

    hashes = json.loads(found.splitlines()[-1])["hashes"]
    assert len({*hashes.values()}) == 1
