"""Create one Airflow DAG `restate_<name>` per definition, which reprocesses days that late data made stale.

An invalid definition has no DAG; `broken_definitions.py` reports its errors.
"""

from __future__ import annotations

from backstream.airflow import backfill_dags

globals().update(backfill_dags(kinds=["restate"]))
