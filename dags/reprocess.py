"""Create one Airflow DAG `reprocess_<name>` per definition, with a form for the range and the options of a run.

An invalid definition has no DAG; `broken_definitions.py` reports its errors.
"""

from __future__ import annotations

from backstream.orchestration.dags import reprocess_dags

for dag in reprocess_dags():
    globals()[dag.dag_id] = dag
