"""Build a Kubernetes control plane and the Spark operator from Go modules, once per version.

    python -m tests.kubernetes.build

The programs are in `~/.cache/backstream-kubernetes/<digest>`; the digest is that of the versions and the Go file.
With an empty cache of Go the build takes about 20 minutes of one core, and Go's cache then has 3.5 GB.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "1.37.2"
OPERATOR = "2.5.0"
_SOURCE = Path(__file__).parent / "programs" / "control_plane.go"
_OPERATOR_MODULE = "github.com/kubeflow/spark-operator/v2"
_OPERATOR_IMPORT = f'//go:build tools\n\npackage tools\n\nimport _ "{_OPERATOR_MODULE}/cmd/operator"\n'
_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of a cluster.

    Attributes:
        control_plane: etcd, API server, controllers, scheduler, and kubectl in one file.
        operator: the Spark operator.
        definitions: folder of the operator's resource definitions (CRDs), as YAML.
    """

    control_plane: Path
    operator: Path
    definitions: Path


def find_programs() -> Programs:
    """Return where the programs lie, whether they are built or not."""
    digest = hashlib.sha256(f"{KUBERNETES} {OPERATOR} {_SOURCE.read_text()}".encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "backstream-kubernetes" / digest
    return Programs(folder / "control-plane", folder / "spark-operator", folder / "definitions")


def build() -> Programs:
    """Build the programs that are missing, and return them.

    Raises:
        SystemExit: when there is no Go, or a build fails.
    """
    programs = find_programs()
    if shutil.which("go") is None and not (programs.control_plane.exists() and programs.operator.exists()):
        sys.exit("no program `go`; the Kubernetes programs are built by Go 1.26")
    work = programs.control_plane.parent / "work"
    if not programs.control_plane.exists():
        minor = KUBERNETES.partition(".")[2]
        # The module's own staging modules are folders of its repository: each is published as v0.MINOR.
        _write_module(work / "control-plane", "k8s.io/kubernetes", f"v{KUBERNETES}", staging_version=f"v0.{minor}")
        shutil.copy(_SOURCE, work / "control-plane" / "main.go")
        major_minor = KUBERNETES.split(".")
        values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major_minor[0], "gitMinor": major_minor[1]}
        flags = " ".join(["-s -w", *(f"-X {_VERSION}.{name}={value}" for name, value in values.items())])
        _compile(work / "control-plane", ".", programs.control_plane, flags)
    if not programs.operator.exists():
        source = _write_module(work / "operator", _OPERATOR_MODULE, f"v{OPERATOR}")
        (work / "operator" / "tools.go").write_text(_OPERATOR_IMPORT)
        shutil.copytree(source / "config" / "crd" / "bases", programs.definitions, dirs_exist_ok=True)
        _compile(work / "operator", f"{_OPERATOR_MODULE}/cmd/operator", programs.operator, "-s -w")
    shutil.rmtree(work, ignore_errors=True)
    return programs


def _write_module(folder: Path, module: str, version: str, staging_version: str = "") -> Path:
    """Write the go.mod of a main module that needs one module, and return the folder of that module's source.

    Go ignores the `replace` lines of a dependency, so they are written again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(f"module backstream.test/{folder.name}\n\ngo 1.26.0\n")
    source = Path(json.loads(_go(folder, "mod", "download", "-json", f"{module}@{version}"))["Dir"])
    known = json.loads(_go(folder, "mod", "edit", "-json", str(source / "go.mod")))
    replacements = [
        f"-replace={line['Old']['Path']}={line['New']['Path']}@{line['New']['Version']}"
        if line["New"].get("Version")
        else f"-replace={line['Old']['Path']}={line['Old']['Path']}@{staging_version}"
        for line in known.get("Replace") or []
    ]
    _go(folder, "mod", "edit", f"-require={module}@{version}", *replacements)
    return source


def _compile(folder: Path, package: str, output: Path, linker_flags: str) -> None:
    """Compile one package to a file, which appears when it is whole."""
    _go(folder, "mod", "tidy")
    part = output.with_suffix(".part")
    _go(folder, "build", "-trimpath", "-p=2", "-ldflags", linker_flags, "-o", str(part), package)
    part.rename(output)


def _go(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false"}
    done = subprocess.run(
        ["go", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"go {' '.join(arguments[:2])} failed in {folder}:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.stdout.write(f"{build().control_plane.parent}\n")
