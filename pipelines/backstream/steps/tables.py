"""The tables of a run, made before its first chunk is staged."""

from __future__ import annotations

from backstream.core.plan import Plan
from backstream.lake import planned_tables
from backstream.lake.catalog import opened
from backstream.steps.state import home_of


def make_tables(plan: Plan) -> None:
    """Make the tables that a plan promised, with the columns it promised; doing it again does nothing.

    Raises:
        PlanError: when another definition writes the dataset, or its published rows have other keys.
        ContractError: when somebody else made or changed a table since the run was planned.
    """
    with opened(home_of(plan)) as catalog:
        planned_tables.make_tables(catalog, plan)
