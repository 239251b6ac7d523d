"""One Airflow DAG per definition with a form: any range, with options, a reason, a dry run, approval.

A definition that is broken has no DAG here; `broken_definitions.py` shows what is wrong with it.
"""

from __future__ import annotations

from backstream.orchestration.dags import reprocess_dags

for dag in reprocess_dags():
    globals()[dag.dag_id] = dag
