"""One Airflow DAG per definition: its schedule, and Airflow's native Backfill.

A definition that is broken has no DAG here; `broken_definitions.py` shows what is wrong with it.
"""

from __future__ import annotations

from backstream.orchestration.dags import backfill_dags

for dag in backfill_dags():
    globals()[dag.dag_id] = dag
