"""Which chunks the native engine runs."""

from __future__ import annotations

from backstream.native.supported import reason_against
from backstream.spark.work import Work


def is_chosen(work: Work) -> bool:
    """Whether these chunks are for the native engine: as the definition says, or else if it knows all of that."""
    engine = work.definition.backfill.engine
    if engine != "auto":
        return engine == "native"
    return reason_against(work.definition, work.plan.columns) is None
