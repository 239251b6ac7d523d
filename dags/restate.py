"""Create one Airflow DAG `restate_<name>` per definition, which reprocesses days that late data made stale.

An invalid definition has no DAG; `broken_definitions.py` reports its errors.
"""

from __future__ import annotations

from backstream.orchestration.dags import restate_dags

for dag in restate_dags():
    globals()[dag.dag_id] = dag
