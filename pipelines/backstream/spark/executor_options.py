"""Choose options for the Java of executors."""

from __future__ import annotations

from backstream.chunks.engine_choice import is_native
from backstream.definition.loader import parse_definition
from backstream.runs.plan import Plan
from backstream.spark.java import FIRST_COMPILER


def executor_java_options(plan: Plan) -> str:
    """Return options for the Java of executors; empty if Spark computes a part of the plan.

    Native tasks need Java only to start them. With these options it starts in about half the time.
    """
    definition = parse_definition(plan.definition, f"plan {plan.run_id}")
    has_spark_steps = bool(definition.derive_after or definition.withholds_rows)
    return FIRST_COMPILER if is_native(definition, plan.columns) and not has_spark_steps else ""
