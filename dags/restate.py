"""One Airflow DAG per definition that finds what late data made stale, and has exactly that run again.

A definition that is broken has no DAG here; `broken_definitions.py` shows what is wrong with it.
"""

from __future__ import annotations

from backstream.orchestration.dags import restate_dags

for dag in restate_dags():
    globals()[dag.dag_id] = dag
