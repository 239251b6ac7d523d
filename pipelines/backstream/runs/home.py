"""Locate all files of an installation: a home folder with the data, the lake, and a folder per run."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backstream.errors import LedgerError, SpecError, storage_error
from backstream.runs.bundled_files import bundled_folder

PROJECT_VARIABLE = "BACKSTREAM_PROJECT"
"""The folder with `backstream.toml` and `.env`; by default the nearest one above the working directory."""
HOME_VARIABLE = "BACKSTREAM_HOME"
"""The folder with all state of an installation; by default `.backstream` in the project or working directory."""
DEFINITIONS_VARIABLE = "BACKSTREAM_DEFINITIONS"
"""The folders of definitions, separated by `:`; by default `definitions` in the project, or else the demo's."""
EXPECTATIONS_VARIABLE = "BACKSTREAM_EXPECTATIONS"
"""The folders of your own suites, separated by `:`; by default `expectations` in the project."""
CATALOG_VARIABLE = "BACKSTREAM_CATALOG_URI"
"""The address of the Iceberg catalog: a database, `https://` (REST), `thrift://` (Hive), or `glue://`; by default
SQLite in the home folder."""
CATALOG_NAME_VARIABLE = "BACKSTREAM_CATALOG"
"""The name of a catalog in PyIceberg's configuration, in place of `BACKSTREAM_CATALOG_URI`."""
NAMESPACE_VARIABLE = "BACKSTREAM_NAMESPACE"
"""The namespace of the tables in the catalog, e.g., `sales.hourly`; by default `backstream`."""
WAREHOUSE_VARIABLE = "BACKSTREAM_WAREHOUSE"
"""The folder or `s3://bucket/prefix` (or `gs`, `abfss`, `hdfs`) of the tables; by default that of the catalog, or
a folder in the home folder."""
CATALOG_CONNECTION_VARIABLE = "BACKSTREAM_CATALOG_CONNECTION"
"""The id of the Airflow connection to the catalog, which tasks use instead of an address; by default
`backstream_catalog`, if it exists."""
WAREHOUSE_CONNECTION_VARIABLE = "BACKSTREAM_WAREHOUSE_CONNECTION"
"""The id of the Airflow connection to the warehouse, which tasks use instead of an address; by default
`backstream_warehouse`, if it exists."""
SHARED_HOME_VARIABLE = "BACKSTREAM_SHARED_HOME"
"""`yes` (default), or `no` if Spark's executors don't share the home folder, but only an object store."""
TEAM_VARIABLE = "BACKSTREAM_TEAM"
"""The team of a project, e.g., `sales`: a part of the names of its DAGs and assets. So projects in one Airflow can
have datasets of equal names. By default there is none."""
HEAP_VARIABLE = "BACKSTREAM_DRIVER_MEMORY"
"""The heap of Spark's Java, e.g., `8g`; by default a share of the memory of this machine."""
CLASS_ARCHIVE_VARIABLE = "BACKSTREAM_CLASS_ARCHIVE"
"""The folder of Java's class archives; by default in the Python environment. An empty text disables archives."""
TASK_VARIABLE = "BACKSTREAM_PARENT_TASK"
"""Variable of a Spark job: the task that waits for it, as `host/process`."""
ERROR_FILE_VARIABLE = "BACKSTREAM_ERROR_FILE"
"""Variable of a Spark job: the file for its error, which the task that waits for it raises."""
_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Home:
    """The folder with all state of one installation."""

    path: Path

    @classmethod
    def from_environment(cls) -> Home:
        """Return the home at `$BACKSTREAM_HOME`; by default `.backstream` in the working directory."""
        return cls(Path(os.environ.get(HOME_VARIABLE) or ".backstream").resolve())

    @property
    def is_shared(self) -> bool:
        """True if executors share the folder: `$BACKSTREAM_SHARED_HOME`.

        Raises:
            SpecError: when the variable is neither `yes` nor `no`.
        """
        text = os.environ.get(SHARED_HOME_VARIABLE) or "yes"
        if text not in {"yes", "no"}:
            msg = f"{SHARED_HOME_VARIABLE} must be yes or no, got {text!r}"
            raise SpecError(msg)
        return text == "yes"

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
        """The address of the Iceberg catalog: `$BACKSTREAM_CATALOG_URI`, by default SQLite in the home."""
        return os.environ.get(CATALOG_VARIABLE) or f"sqlite:///{self.path / 'catalog.db'}?timeout=60"

    def run(self, dataset: str, run_id: str) -> RunFolder:
        """Return the folder of one run."""
        return RunFolder(self.path / "runs" / dataset / run_id)

    @property
    def sound_suites(self) -> Path:
        """The folder with an empty file per content of a suite that passed its check."""
        return self.path / "suites"

    def summary(self, name: str) -> Path:
        """Return the file of a summary, a cache of immutable files; it may be deleted."""
        return self.path / "summaries" / name

    def observation(self, dataset: str) -> Path:
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


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON by atomic rename: readers see either the old or the new file."""
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text by atomic rename: readers see either the old or the new file.

    Raises:
        StorageError: when it cannot be written, for example on a full disk.
    """
    with replace_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a draft that replaces a file when the block ends: readers see either the old or the new file.

    Raises:
        StorageError: when it cannot be written, for example on a full disk.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        draft.replace(path)
    except OSError as error:
        action = f"cannot write {path.name}"
        raise storage_error(action, path.parent, error) from error
    finally:
        with suppress(OSError):  # its folder may not exist
            draft.unlink(missing_ok=True)


def list_drafts(folder: Path) -> Iterator[Path]:
    """Return the drafts under a folder: those of killed writers, and those that are being written."""
    return (path for path in folder.rglob(".*") if _DRAFT.fullmatch(path.name))


def load_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object from a file; `what` is its name for messages.

    Raises:
        LedgerError: when there is no such file, or it contains no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        msg = f"no {what} at {path}"
        raise LedgerError(msg) from None
    except ValueError as error:
        msg = f"{what} at {path} is not JSON: {error}"
        raise LedgerError(msg) from error
    if not isinstance(content, dict):
        msg = f"{what} at {path} must be a JSON object, got {type(content).__name__}"
        raise LedgerError(msg)
    return content


def definitions_folders() -> tuple[Path, ...]:
    """Return the folders of definitions: `$BACKSTREAM_DEFINITIONS`, by default that of the demo."""
    return _folders(DEFINITIONS_VARIABLE) or (bundled_folder("definitions"),)


def expectations_folders() -> tuple[Path, ...]:
    """Return the folders of suites: those of `$BACKSTREAM_EXPECTATIONS`, then that of the bundled suites."""
    return (*_folders(EXPECTATIONS_VARIABLE), bundled_folder("expectations"))


def _folders(variable: str) -> tuple[Path, ...]:
    """Return the folders in a variable, without repetitions."""
    return tuple(dict.fromkeys(Path(path) for path in os.environ.get(variable, "").split(os.pathsep) if path))
