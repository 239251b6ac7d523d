"""Report invalid definitions as an import error of this file, with file, key, and value.

Airflow hides all DAGs of a file with an import error. This file has none, so other definitions are not affected.
"""

from __future__ import annotations

from backstream.airflow import require_valid_definitions

require_valid_definitions()
