"""Name the DAGs and assets of a dataset, with its team: teams of one Airflow can have datasets of equal names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from backstream.errors import SpecError
from backstream.variables import TEAM_VARIABLE

BACKFILL, REPROCESS, RESTATE, KEEP_BATCHES = "backfill", "reprocess", "restate", "keep_batches"
_KINDS = (BACKFILL, REPROCESS, RESTATE, KEEP_BATCHES)
_TEAM = re.compile(r"[a-z][a-z0-9-]*")
_DATASET = re.compile(r"[a-z][a-z0-9_]*")


def load_team(variables: Mapping[str, str] = os.environ) -> str:
    """Return the team of a project; empty if it has none.

    Raises:
        SpecError: when the name has other characters than lower-case letters, digits, and `-`.
    """
    team = variables.get(TEAM_VARIABLE, "")
    if team and not _TEAM.fullmatch(team):
        msg = f"team must be lower-case letters, digits, and -, got {team!r} ({TEAM_VARIABLE})"
        raise SpecError(msg)
    return team


def qualified_name(dataset: str, team: str) -> str:
    """Return the name of a dataset in Airflow, such as `sales.orders`; without a team, `orders`."""
    return f"{team}.{dataset}" if team else dataset


def dag_id_of(kind: str, dataset: str, team: str | None = None) -> str:
    """Return the id of a DAG of a dataset, such as `backfill_sales.orders`; by default of the process's team."""
    return f"{kind}_{qualified_name(dataset, load_team() if team is None else team)}"


def dataset_of_dag(dag_id: str) -> str | None:
    """Return the dataset of a DAG; None for a DAG without a definition, or one of another team."""
    prefixes = (f"{kind}_{qualified_name('', load_team())}" for kind in _KINDS)
    names = (dag_id.removeprefix(prefix) for prefix in prefixes if dag_id.startswith(prefix))
    return next((name for name in names if _DATASET.fullmatch(name)), None)
