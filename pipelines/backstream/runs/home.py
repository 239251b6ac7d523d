"""Where things lie: one home folder holds the data, the lake, and a folder per run."""

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

from backstream.errors import LedgerError, storage_error

HOME_VARIABLE = "BACKSTREAM_HOME"
"""The folder with all state of an installation; by default `.backstream` in the working directory."""
DEFINITIONS_VARIABLE = "BACKSTREAM_DEFINITIONS"
"""The folder of definitions; by default `pipelines/definitions` beside the package."""
EXPECTATIONS_VARIABLE = "BACKSTREAM_EXPECTATIONS"
"""The folder of expectation suites; by default `expectations` at the top of the checkout."""
CATALOG_VARIABLE = "BACKSTREAM_CATALOG_URI"
"""The SQLAlchemy URI of the Iceberg catalog; by default SQLite in the home folder."""
WAREHOUSE_VARIABLE = "BACKSTREAM_WAREHOUSE"
"""The folder or `s3://bucket/prefix` of the tables; by default a folder in the home folder."""
TASK_VARIABLE = "BACKSTREAM_PARENT_TASK"
"""Set for a Spark job: the task that waits for it, as `host/process`."""
_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Home:
    """The folder that holds all state of one installation."""

    path: Path

    @classmethod
    def from_environment(cls) -> Home:
        """`$BACKSTREAM_HOME`, else `.backstream` in the working directory."""
        return cls(Path(os.environ.get(HOME_VARIABLE) or ".backstream").resolve())

    @property
    def data(self) -> Path:
        """Recorded events."""
        return self.path / "data"

    @property
    def warehouse(self) -> Path:
        """Files of the lake's tables, unless `$BACKSTREAM_WAREHOUSE` says another place."""
        return self.path / "warehouse"

    @property
    def warehouse_uri(self) -> str:
        """Where the files of the lake's tables are, as it was written: it may hold a secret."""
        return os.environ.get(WAREHOUSE_VARIABLE) or str(self.warehouse)

    def staging(self, table: str) -> Path:
        """Files that wait to be copied to a table in an object store."""
        return self.path / "staged" / table

    @property
    def catalog_uri(self) -> str:
        """SQLAlchemy URI of the Iceberg catalog: `$BACKSTREAM_CATALOG_URI`, else SQLite in the home folder."""
        return os.environ.get(CATALOG_VARIABLE) or f"sqlite:///{self.path / 'catalog.db'}?timeout=60"

    def run(self, dataset: str, run_id: str) -> RunFolder:
        """The folder of one run."""
        return RunFolder(self.path / "runs" / dataset / run_id)

    @property
    def sound_suites(self) -> Path:
        """An empty file for each content of a suite that was found sound."""
        return self.path / "suites"

    def summary(self, name: str) -> Path:
        """What was read of something that does not change, so that it is not read again; may be deleted."""
        return self.path / "summaries" / name

    def observation(self, dataset: str) -> Path:
        """What the newest look at a dataset found: seals and stale days, JSON."""
        return self.path / "dataset_state" / f"{dataset}.json"

    def advice(self, dataset: str) -> Path:
        """The newest advice on a dataset's delay, with the whole curve, JSON."""
        return self.path / "advice" / f"{dataset}.json"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """What one run leaves: its plan and a summary of it, a manifest per chunk, and what came of it in the end."""

    path: Path

    @property
    def plan(self) -> Path:
        """The plan, JSON."""
        return self.path / "plan.json"

    @property
    def summary(self) -> Path:
        """As much of the plan as pages show, JSON: a plan may be large."""
        return self.path / "run.json"

    @property
    def manifests(self) -> Path:
        """The folder of the chunks' manifests."""
        return self.path / "chunks"

    @property
    def files_read(self) -> Path:
        """The input files that the run reads, chunk by chunk, JSON: a small part of the plan."""
        return self.path / "files_read.json"

    @property
    def errors(self) -> Path:
        """What Java said of errors, a text file each."""
        return self.path / "errors"

    def manifest(self, chunk_id: str) -> Path:
        """What the job of one chunk produced, JSON."""
        return self.manifests / f"{chunk_id}.json"

    @property
    def audit_frame(self) -> Path:
        """The audit frame, Parquet."""
        return self.path / "audit.parquet"

    @property
    def day_totals(self) -> Path:
        """What was counted per day, JSON: a small part of the audit frame, for the pages."""
        return self.path / "day_totals.json"

    @property
    def audit_result(self) -> Path:
        """The gate's answer with every check, JSON."""
        return self.path / "audit_result.json"

    @property
    def approval(self) -> Path:
        """What a person decided about the result, JSON; absent when nobody was asked, or has not answered."""
        return self.path / "approval.json"

    @property
    def publication(self) -> Path:
        """What was committed, JSON; absent when nothing was."""
        return self.path / "publication.json"

    @property
    def report(self) -> Path:
        """The run report, one self-contained HTML file."""
        return self.path / "report.html"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write by atomic rename: readers see the old file or the new one."""
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write by atomic rename: readers see the old file or the new one.

    Raises:
        StorageError: when it cannot be written, as on a full disk.
    """
    with replace_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A draft to be written, which takes a file's place when the block ends: readers see the old or the new one.

    Raises:
        StorageError: when it cannot be written, as on a full disk.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        draft.replace(path)
    except OSError as error:
        what = f"cannot write {path.name}"
        raise storage_error(what, path.parent, error) from error
    finally:
        with suppress(OSError):  # its folder may not be there
            draft.unlink(missing_ok=True)


def list_drafts(folder: Path) -> Iterator[Path]:
    """What writers that were killed have left anywhere under a folder, and what others are writing right now."""
    return (path for path in folder.rglob(".*") if _DRAFT.fullmatch(path.name))


def load_json(path: Path, what: str) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        LedgerError: when there is no such file or it holds no JSON object.
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


def definitions_folder() -> Path:
    """Where definitions are looked for: `$BACKSTREAM_DEFINITIONS`, else beside the package."""
    return Path(os.environ.get(DEFINITIONS_VARIABLE) or Path(__file__).parents[2] / "definitions")


def expectations_folder() -> Path:
    """Where suites are looked for: `$BACKSTREAM_EXPECTATIONS`, else at the top of the checkout."""
    return Path(os.environ.get(EXPECTATIONS_VARIABLE) or Path(__file__).parents[3] / "expectations")
