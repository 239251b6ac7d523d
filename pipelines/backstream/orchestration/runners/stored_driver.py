"""Give a driver on another machine what it needs: the package, its variables, and a place for its error.

Such a driver shares no disk with the task, so all of it is in the home, which is in an object store. It gets no
address of the catalog: the task creates the tables before, and records a failure afterwards.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from backstream.errors import BackstreamError, SpecError
from backstream.orchestration.runners.job_runner import SparkJob
from backstream.orchestration.runners.spark_command import find_module_file
from backstream.runs.home import Home
from backstream.storage.object_stores import StoreAccess
from backstream.storage.stores import Stores, is_in_store
from backstream.user_code import read_sources
from backstream.variables import (
    ERROR_FILE_VARIABLE,
    HOME_VARIABLE,
    NAMESPACE_VARIABLE,
    PACKAGE_VARIABLE,
    WAREHOUSE_VARIABLE,
)

_PACKAGE = "backstream"
LAUNCHER = "launch.py"
_KEPT = (WAREHOUSE_VARIABLE, NAMESPACE_VARIABLE)
_STORE_VARIABLES = {
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
    "s3.endpoint": "AWS_ENDPOINT_URL",
}

_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_USER_INFO = re.compile(r"^(\w+://)[^/@]*@")
"""The keys in the address of a store."""


def require_home_in_store(job: SparkJob, place: str) -> None:
    """Check that a driver on another machine can read the home.

    Raises:
        SpecError: when the home is a folder.
    """
    if not job.home.address:
        msg = (
            f"a driver {place} needs a home in an object store, got {job.home.path} ({HOME_VARIABLE})\n\n"
            f"hint: set {HOME_VARIABLE} to an address, e.g., s3://bucket/backstream, or set the deploy-mode of the"
            " connection to client"
        )
        raise SpecError(msg)


def stored_environment(job: SparkJob, error_location: str, *, has_keys: bool = True) -> dict[str, str]:
    """Upload the package to the home, and return the variables of the driver.

    Args:
        job: the job.
        error_location: object for the error of the driver.
        has_keys: whether the variables have the keys of the stores; without them the machine needs a role.
    """
    kept = {name: value for name in _KEPT if (value := os.environ.get(name))}
    access = StoreAccess.from_environment().properties
    keys = {variable: access[name] for name, variable in _STORE_VARIABLES.items() if name in access}
    if not has_keys:
        keys = {name: value for name, value in keys.items() if name not in _SECRETS}
        kept = {name: _USER_INFO.sub(r"\1", value) for name, value in kept.items()}
    return (
        kept
        | keys
        | {
            HOME_VARIABLE: job.home.address,
            ERROR_FILE_VARIABLE: error_location,
            PACKAGE_VARIABLE: _upload_package(job.home),
        }
    )


def _upload_package(home: Home) -> str:
    """Upload the Python files of this package to the home, if they are not there, and return the address."""
    content = io.BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as file:
        for name, text in read_sources(_PACKAGE):
            file.writestr(ZipInfo(name), text, ZIP_DEFLATED)  # without times, equal files give equal archives
    digest = hashlib.sha256(content.getvalue()).hexdigest()[:16]
    return _upload(f"{home.address}/packages/{_PACKAGE}-{digest}.zip", content.getvalue())


def launcher_text() -> str:
    """Return the program that downloads and runs the package on the machine of the driver."""
    return find_module_file("backstream.jobs.launch").read_text(encoding="utf-8")


def upload_launcher(home: Home) -> str:
    """Upload the program that runs the package, if it is not in the home, and return the address."""
    content = launcher_text().encode()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return _upload(f"{home.address}/packages/launch-{digest}.py", content)


def _upload(address: str, content: bytes) -> str:
    stores = Stores.from_environment()
    [version] = stores.find_versions([address])
    if version is None or version.size_bytes != len(content):
        filesystem, path = stores.open(address)
        with filesystem.open_output_stream(path) as stream:
            stream.write(content)
    return address


def read_sentence(location: str) -> str:
    """Return the sentence of the error that a driver has left; empty if there is none."""
    stores = Stores.from_environment()
    try:
        [version] = stores.find_versions([location])
        if version is None:
            return ""
        if is_in_store(location):
            with stores.open_file(location) as stream:
                return str(stream.read().decode("utf-8", "replace")).strip()
        with open(location, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a location
            return file.read().strip()
    except (BackstreamError, OSError):  # the error of the job is more important
        return ""
