"""Shows each broken definition as an import error; holds no DAG.

Airflow hides every DAG of a file that has an import error. Kept apart, a definition that is wrong is seen
in the list of import errors, with file, key and value, and takes no other definition's DAG down.
"""

from __future__ import annotations

from backstream.orchestration.dags import validate_definitions

validate_definitions()
