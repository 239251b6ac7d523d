"""Check that what a plan was made of has not changed since."""

from __future__ import annotations

from backstream.definition.loader import require_unchanged_code, require_unchanged_definition
from backstream.runs.plan import Plan
from backstream.source.input_versions import require_unchanged_inputs


def require_nothing_changed(plan: Plan) -> None:
    """Check that the definition, its code, and the input files have not changed since planning.

    Raises:
        PlanError: with the differences.
    """
    require_unchanged_definition(plan)
    require_unchanged_code(plan)
    require_unchanged_inputs(plan)
    if plan.side_inputs:
        from backstream.workflow.inputs.side_inputs import require_unchanged_side_inputs

        require_unchanged_side_inputs(plan)
