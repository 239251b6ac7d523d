"""Decide whether the native engine runs a chunk group, and whether Spark runs it after an error."""

from __future__ import annotations

import re
from collections.abc import Mapping

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.errors import BackstreamError
from backstream.native.supported import reason_not_native
from backstream.native.task_runner import FAILED
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.spark.failures import REFUSALS
from backstream.spark.java import FIRST_COMPILER


def is_native(definition: Definition, columns: Mapping[str, str]) -> bool:
    """Return whether the native engine computes a definition: it can, or `backfill.engine` requires it."""
    if definition.backfill.engine != "auto":
        return definition.backfill.engine == "native"
    return reason_not_native(definition, columns) is None


def executor_java_options(plan: Plan) -> str:
    """Return options for the Java of executors; empty if Spark computes a part of the plan.

    Native tasks need Java only to start them. With these options it starts in about half the time.
    """
    definition = parse_definition(plan.definition, f"plan {plan.run_id}")
    has_spark_steps = bool(definition.derive_after or definition.having)
    return FIRST_COMPILER if is_native(definition, plan.columns) and not has_spark_steps else ""


_CANCELLED = "cancelled"


def can_fall_back(definition: Definition, error: Exception) -> bool:
    """Return whether Spark computes the chunks after this error of the native engine.

    It doesn't if the definition requires the native engine, if a user canceled the job, if a disk is full or
    read-only, if counts disagree, or if executors don't share the home.
    """
    if definition.backfill.engine != "auto" or isinstance(error, BackstreamError):
        return False
    if not Home.from_environment().is_shared:
        return False
    message = str(error)
    return _CANCELLED not in message.lower() and not any(reason in message for reason in REFUSALS)


def task_error_text(error: Exception) -> str:
    """Return the sentence of a task's error without the traces around it."""
    message = str(error)
    sentence = re.search(rf"{FAILED}[^\n]*", message) or re.search(r"\S[^\n]*", message)
    return sentence[0] if sentence else type(error).__name__
