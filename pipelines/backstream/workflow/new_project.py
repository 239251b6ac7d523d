"""Write the files of a new project: settings, an own quality suite, a DAG file, and notes for its readers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from backstream.errors import SpecError, storage_error
from backstream.runs.settings import PROJECT_FILE, find_project
from backstream.variables import DEFINITIONS_VARIABLE, HOME_VARIABLE
from backstream.workflow.checks.findings import Finding, warn

_SETTINGS = """\
# Settings of backstream. `backstream config` prints each value and where it comes from.
# An environment variable, e.g., BACKSTREAM_HOME, and the file .env override a value of this file.

# home = ".backstream"               # state of all runs: a folder that all machines share, or s3://bucket/prefix
# definitions = ["definitions"]      # folders of definitions, with subfolders
# expectations = ["expectations"]    # folders of your own quality suites
# warehouse = "s3://bucket/prefix"   # by default a folder in the home
# catalog_uri = "${LAKE_CATALOG}"    # by default SQLite in the home; a variable of .env or of the environment
# driver_memory = "4g"               # by default half of the memory
"""
_DOTENV = """\
# Secrets and values of this machine, one NAME=value per line. Keep this file out of version control.
# LAKE_CATALOG=postgresql+psycopg2://user:password@host/lake
"""
_IGNORED = """\
.env
.backstream/
"""
_SUITE = {
    "name": "own_checks",
    "meta": {"includes": ["window_audit"]},
    "notes": 'The bundled checks. Add your own to `expectations`, and use them with suite = "own_checks".',
    "expectations": [],
}
_DAG_FILE = '''\
"""The DAGs of each definition of this project."""

{import_path}from backstream.airflow import backfill_dags

globals().update(backfill_dags({folder}))
'''
_README = """\
# Backfills

Each file in `definitions` describes a dataset. Your quality suites are in `expectations`. Settings are in
`backstream.toml`.

```console
$ backstream doctor
$ backstream init orders --from "$PWD/data/orders" --to definitions/orders.toml
$ backstream check orders --sample 1000
$ backstream run orders --since 2026-01-01 --until 2026-01-08
```

`dags/backfills.py` makes the DAGs of each definition. Add the folder of this project to Airflow as a DAG
bundle, or put it into the folder of DAGs.
"""
_NEEDED_BY_AIRFLOW = {
    HOME_VARIABLE: "the folder with the state of all runs",
    DEFINITIONS_VARIABLE: "the folder of definitions",
}


def write_project(folder: Path) -> list[Path]:
    """Write the files of a new project, and return them.

    Args:
        folder: folder of the project; it can have other files.

    Raises:
        SpecError: when one of the files exists.
        StorageError: when a file cannot be written.
    """
    return _write_files(
        folder,
        {
            PROJECT_FILE: _SETTINGS,
            ".env": _DOTENV,
            ".gitignore": _IGNORED,
            "README.md": _README,
            "definitions/.gitkeep": "",
            "expectations/own_checks.json": json.dumps(_SUITE, indent=2) + "\n",
            "dags/backfills.py": _dag_file(is_in_project=True),
        },
    )


def write_dag_file(folder: Path) -> Path:
    """Write only the DAG file, and return it: in the project of a folder, or else in the folder itself.

    Raises:
        SpecError: when the file exists.
        StorageError: when the file cannot be written.
    """
    project = find_project(folder)
    place = project / "dags" if project else folder
    (file,) = _write_files(place, {"backfills.py": _dag_file(is_in_project=project is not None)})
    return file


def list_missing_settings() -> Iterator[Finding]:
    """Yield a finding per setting that Airflow needs, and that this process has only by default."""
    for variable, what in _NEEDED_BY_AIRFLOW.items():
        if not os.environ.get(variable):
            yield warn("settings", f"{variable} is not set", f"set it to {what} for all processes of Airflow")


def _dag_file(*, is_in_project: bool) -> str:
    if is_in_project:
        import_path, folder = "from pathlib import Path\n\n", 'Path(__file__).parents[1] / "definitions"'
        return _DAG_FILE.format(import_path=import_path, folder=folder)
    return _DAG_FILE.format(import_path="", folder="")


def _write_files(folder: Path, contents: Mapping[str, str]) -> list[Path]:
    files = {folder / name: content for name, content in contents.items()}
    if existing := [str(file) for file in files if file.exists()]:
        msg = f"{existing[0]} exists already\n\nhint: choose another folder, or remove the file"
        raise SpecError(msg)
    for file, content in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        except OSError as error:
            what = "cannot write a file of the project"
            raise storage_error(what, file, error) from error
    return list(files)
