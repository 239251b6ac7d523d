"""Create an Airflow DAG `keep_batches_<name>` per definition with the checkpoint of a job, to keep its batches.

An invalid definition has no DAG; `broken_definitions.py` reports its errors.
"""

from __future__ import annotations

from backstream.airflow import backfill_dags

globals().update(backfill_dags(kinds=["keep_batches"]))
