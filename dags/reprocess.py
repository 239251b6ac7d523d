"""Create one Airflow DAG `reprocess_<name>` per definition, with a form for the range and the options of a run.

An invalid definition has no DAG; `broken_definitions.py` reports its errors.
"""

from __future__ import annotations

from backstream.airflow import backfill_dags

globals().update(backfill_dags(kinds=["reprocess"]))
