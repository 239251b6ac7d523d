"""Build DAGs and task groups in your own DAG files.

Example of a DAG file:

    from backstream.airflow import backfill_dags

    globals().update(backfill_dags("/srv/backfills/definitions", default_args={"owner": "sales"}))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from backstream.orchestration.dag_options import CONNECTION_ID, POOL, DagOptions
from backstream.orchestration.dags import build_dags, require_valid
from backstream.orchestration.definitions import find_folders, load_definitions, require_folders
from backstream.orchestration.run_tasks import BackfillTaskGroup

__all__ = ["BackfillTaskGroup", "backfill_dags", "require_valid_definitions"]


def backfill_dags(
    folder: Path | str | None = None,
    *,
    package: str | None = None,
    kinds: Sequence[str] = (),
    pool: str = POOL,
    spark_connection: str = CONNECTION_ID,
    default_args: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    **dag_args: Any,
) -> dict[str, DAG]:
    """Return the DAGs of all valid definitions by id, for the `globals()` of a DAG file.

    An invalid definition has no DAG. Call `require_valid_definitions` in another DAG file to report it.

    Args:
        folder: folder of definitions, with subfolders; by default the folders of the settings.
        package: Python package with definitions, in place of a folder, such as `acme.backfills`.
        kinds: `backfill`, `reprocess`, `restate`, and `keep_batches`; by default all that a definition can have.
        pool: pool of the tasks that run Spark jobs.
        spark_connection: id of the Airflow connection to Spark.
        default_args: arguments of each task, e.g., `owner`, `queue`, `executor`, `priority_weight`, callbacks.
        tags: further tags of each DAG.
        dag_args: further arguments of each DAG, such as `access_control` or `max_active_runs`.

    Raises:
        SpecError: when there is no such folder, package, or kind.
    """
    options = DagOptions(pool, spark_connection, dict(default_args or {}), tuple(tags), dag_args)
    return build_dags(load_definitions(find_folders(folder, package)), options, *kinds)


def require_valid_definitions(folder: Path | str | None = None, *, package: str | None = None) -> None:
    """Check every definition; an error becomes an import error of the DAG file in Airflow.

    Airflow hides all DAGs of a file with an import error, so call this in a file without DAGs.

    Raises:
        SpecError: with the key and value of each error, or when there is no such folder or package.
    """
    require_valid(load_definitions(require_folders(*find_folders(folder, package))))
