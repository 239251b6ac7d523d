"""Create one Airflow DAG `backfill_<name>` per definition, for its schedule and Airflow's Backfills.

An invalid definition has no DAG; `broken_definitions.py` reports its errors.
"""

from __future__ import annotations

from backstream.airflow import backfill_dags

globals().update(backfill_dags(kinds=["backfill"]))
