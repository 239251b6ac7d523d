"""Locate all files of an installation: a home folder with the data, the lake, and a folder per run."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from backstream.errors import SpecError
from backstream.storage.home_copy import HomeCopy, copy_folder, parse_home_address
from backstream.storage.stores import is_in_store
from backstream.variables import (
    CATALOG_VARIABLE,
    DEFINITIONS_VARIABLE,
    EXPECTATIONS_VARIABLE,
    HOME_VARIABLE,
    SHARED_HOME_VARIABLE,
    WAREHOUSE_VARIABLE,
)

_FETCH_INTERVAL_S = 1.0
_IN_CHECKOUT = {"dags": "dags", "definitions": "pipelines/definitions", "expectations": "expectations"}
"""The folders of the checkout, which an installed package has as `backstream/bundled/<name>`."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folder with all state of one installation; a home in an object store has a copy on this machine.

    Attributes:
        path: the folder, or that of the copy.
        address: the address in an object store; empty for a folder.
    """

    path: Path
    address: str = ""

    @classmethod
    def from_environment(cls) -> Home:
        """Return the home at `$BACKSTREAM_HOME`, by default `.backstream` in the working directory; see `fetch`.

        Raises:
            SpecError: when it is an invalid address.
            StorageError: when the object store cannot be read.
        """
        home = cls.from_location(os.environ.get(HOME_VARIABLE) or ".backstream")
        home.fetch()
        return home

    @classmethod
    def from_location(cls, location: str) -> Home:
        """Return the home at a path or an address, without the changes of other machines.

        Raises:
            SpecError: when it is an invalid address.
        """
        if not is_in_store(location):
            return cls(Path(location).resolve())
        address = parse_home_address(location)
        return cls(copy_folder(address), address)

    @property
    def location(self) -> str:
        """The path or the address."""
        return self.address or str(self.path)

    def location_of(self, path: Path) -> str:
        """Return the path of a file or folder of the home, or its address if the home has one."""
        return HomeCopy(self.address, self.path).location(path) if self.address else str(path)

    def fetch(self) -> None:
        """Copy the changes of other machines to the copy on this machine, at most once per second.

        Raises:
            StorageError: when the object store cannot be read.
        """
        if self.address:
            _fetch(self.address, int(time.monotonic() / _FETCH_INTERVAL_S))

    @property
    def is_shared(self) -> bool:
        """True if executors share the folder: `$BACKSTREAM_SHARED_HOME`. They never share a copy.

        Raises:
            SpecError: when the variable is neither `yes` nor `no`.
        """
        text = os.environ.get(SHARED_HOME_VARIABLE) or "yes"
        if text not in {"yes", "no"}:
            msg = f"{SHARED_HOME_VARIABLE} must be yes or no, got {text!r}"
            raise SpecError(msg)
        return text == "yes" and not self.address

    @property
    def data(self) -> Path:
        """The folder of recorded events."""
        return self.path / "data"

    @property
    def warehouse(self) -> Path:
        """The default folder of the lake's tables; `$BACKSTREAM_WAREHOUSE` overrides it."""
        return self.path / "warehouse"

    @property
    def warehouse_uri(self) -> str:
        """The location of the lake's tables as configured; it may contain a secret."""
        return os.environ.get(WAREHOUSE_VARIABLE) or str(self.warehouse)

    def staging(self, table: str) -> Path:
        """Return the folder of files that are later copied to a table in an object store."""
        return self.path / "staged" / table

    @property
    def catalog_uri(self) -> str:
        """The address of the Iceberg catalog: `$BACKSTREAM_CATALOG_URI`, by default SQLite in the home.

        Raises:
            SpecError: when there is no address, and the home is in an object store.
        """
        if self.address and not os.environ.get(CATALOG_VARIABLE):
            msg = (
                f"a home in an object store needs a catalog elsewhere, got {self.address} ({HOME_VARIABLE})\n\n"
                f"hint: set {CATALOG_VARIABLE}, for example to postgresql+psycopg2://user@host/catalog"
            )
            raise SpecError(msg)
        return os.environ.get(CATALOG_VARIABLE) or f"sqlite:///{self.path / 'catalog.db'}?timeout=60"

    def run(self, dataset: str, run_id: str) -> RunFolder:
        """Return the folder of one run."""
        return RunFolder(self.path / "runs" / dataset / run_id)

    def rollbacks(self, dataset: str) -> Path:
        """Return the folder with a file for each rollback that has begun and is not in the ledger yet."""
        return self.path / "rollbacks" / dataset

    def has_dataset(self, name: str) -> bool:
        """Return whether there are runs or requests of a dataset."""
        return name.isidentifier() and any(
            folder.is_dir() for folder in (self.run(name, "").path, self.requests(name))
        )

    @property
    def sound_suites(self) -> Path:
        """The folder with an empty file per content of a suite that passed its check."""
        return self.path / "suites"

    def summary(self, name: str) -> Path:
        """Return the file of a summary, a cache of immutable files; it may be deleted."""
        return self.path / "summaries" / name

    def dataset_state(self, dataset: str) -> Path:
        """Return the file of the latest state of a dataset: seals and stale days, JSON."""
        return self.path / "dataset_state" / f"{dataset}.json"

    def definition_path(self, definition_id: str) -> Path:
        """Return the file with the path of a definition that writes a table, which records only an id of it."""
        return self.path / "definitions" / f"{definition_id}.txt"

    @property
    def errors(self) -> Path:
        """The folder of traces of jobs without a run, one file each."""
        return self.path / "errors"

    def advice(self, dataset: str) -> Path:
        """Return the file of the latest advice on a dataset's delay, with the whole curve, JSON."""
        return self.path / "advice" / f"{dataset}.json"

    def requests(self, dataset: str) -> Path:
        """Return the folder of the requests for runs of a dataset, one JSON file each."""
        return self.path / "requests" / dataset

    def comparison(self, dataset: str) -> Path:
        """Return the file of the newest comparison of each day of a dataset with a live system, JSON."""
        return self.path / "reconciled" / f"{dataset}.json"

    def dismissals(self, dataset: str) -> Path:
        """Return the folder of the dismissed runs of a dataset, one JSON file each."""
        return self.path / "dismissals" / dataset


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run: its plan with a summary, a manifest per chunk, and its results."""

    path: Path

    @classmethod
    def from_plan(cls, location: str) -> RunFolder:
        """Return the folder of a run by the path or address of its plan, with the changes of other machines.

        Raises:
            StorageError: when the object store cannot be read.
        """
        if not is_in_store(location):
            return cls(Path(location).parent)
        address, _, dataset, run_id, _ = location.rsplit("/", 4)
        home = Home.from_location(address)
        folder = home.run(dataset, run_id)
        HomeCopy(home.address, home.path).fetch_folder(folder.path)
        return folder

    @property
    def plan(self) -> Path:
        """The plan, JSON."""
        return self.path / "plan.json"

    @property
    def summary(self) -> Path:
        """The part of the plan that pages show, JSON: a plan may be large."""
        return self.path / "run.json"

    @property
    def manifests(self) -> Path:
        """The folder of the chunks' manifests."""
        return self.path / "chunks"

    @property
    def files_read(self) -> Path:
        """The input files of the run by chunk, JSON: a small part of the plan."""
        return self.path / "files_read.json"

    @property
    def errors(self) -> Path:
        """The folder of Java error texts, one file each."""
        return self.path / "errors"

    @property
    def phases(self) -> Path:
        """The folder with an empty file per phase that has begun; its time is the heartbeat of the run."""
        return self.path / "phases"

    def manifest(self, chunk_id: str) -> Path:
        """Return the file of the manifest of one chunk, JSON."""
        return self.manifests / f"{chunk_id}.json"

    @property
    def audit_frame(self) -> Path:
        """The audit frame, Parquet."""
        return self.path / "audit.parquet"

    @property
    def day_totals(self) -> Path:
        """The totals per day, JSON: a small part of the audit frame, for the pages."""
        return self.path / "day_totals.json"

    @property
    def audit_result(self) -> Path:
        """The gate's verdict with every check, JSON."""
        return self.path / "audit_result.json"

    @property
    def later_audit(self) -> Path:
        """The newest judgement after the publication, JSON; absent without one."""
        return self.path / "later_audit.json"

    @property
    def approval_request(self) -> Path:
        """The request to approve the publication, JSON; absent if no approval is required."""
        return self.path / "approval_request.json"

    @property
    def approval(self) -> Path:
        """The decision of the approver, JSON; absent without an approval request or before its decision."""
        return self.path / "approval.json"

    @property
    def publication(self) -> Path:
        """The publication, JSON; absent if nothing was committed."""
        return self.path / "publication.json"

    @property
    def verification(self) -> Path:
        """The receipt of the newest verification, JSON; absent before the first one."""
        return self.path / "verification.json"

    @property
    def report(self) -> Path:
        """The run report, one self-contained HTML file."""
        return self.path / "report.html"

    @property
    def later_files(self) -> Path:
        """The number of files and records that came after the plan of a resumed run, JSON; absent without any."""
        return self.path / "later_files.json"

    @property
    def events_sent(self) -> Path:
        """An empty file: Airflow has accepted the task `publish` with its asset events."""
        return self.path / "events_sent"

    @property
    def success_marker(self) -> Path:
        """An empty file, the last one of a run: the report shows the publication."""
        return self.path / "_SUCCESS"


@lru_cache(8)
def _fetch(address: str, interval: int) -> None:
    """Fetch the changes once per interval; `interval` is its number, which the cache compares."""
    del interval
    HomeCopy.from_address(address).fetch()


def definitions_folders() -> tuple[Path, ...]:
    """Return the folders of definitions: `$BACKSTREAM_DEFINITIONS`, by default that of the demo."""
    return _folders(DEFINITIONS_VARIABLE) or (bundled_folder("definitions"),)


def expectations_folders() -> tuple[Path, ...]:
    """Return the folders of suites: those of `$BACKSTREAM_EXPECTATIONS`, then that of the bundled suites."""
    return (*_folders(EXPECTATIONS_VARIABLE), bundled_folder("expectations"))


def _folders(variable: str) -> tuple[Path, ...]:
    """Return the folders in a variable, without repetitions."""
    return tuple(dict.fromkeys(Path(path) for path in os.environ.get(variable, "").split(os.pathsep) if path))


def bundled_folder(name: str) -> Path:
    """Return a folder of files that come with the package: `dags`, `definitions`, or `expectations`."""
    package = Path(str(files("backstream")))
    installed = package / "bundled" / name
    return installed if installed.is_dir() else package.parents[1] / _IN_CHECKOUT[name]
