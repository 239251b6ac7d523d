"""Whether a definition's file still says what a plan was made from."""

from __future__ import annotations

from pathlib import Path

from backstream.core.differences import differences
from backstream.core.errors import PlanError
from backstream.core.folders import Home
from backstream.core.plan import Plan
from backstream.definition.load import load, resolved
from backstream.definition.overrides import overridden

_SHOWN = 10


def require_definition(plan: Plan) -> None:
    """Check that the definition's file has not changed since a plan was made from it.

    A file that is gone changes nothing: the plan carries all that it said.

    Raises:
        PlanError: with each key that has another value now.
        SpecError: when the file is no definition any more.
    """
    path = Path(plan.definition_path)
    if not path.is_file():
        return
    written = load(path)
    if written.definition_hash == plan.definition_hash:
        return
    wanted = overridden(written, plan.overrides, plan.mode)
    now = resolved(wanted, Home(Path(plan.home))).model_dump(mode="json")
    if changed := differences(plan.definition, now):
        more = len(changed) - _SHOWN
        listed = "".join(f"\n  {line}" for line in changed[:_SHOWN]) + (f"\n  and {more} more" if more > 0 else "")
        msg = (
            f"cannot run {plan.run_id}: the definition changed since it was planned ({path}){listed}"
            "\n\nhint: plan the range anew, or undo the change"
        )
        raise PlanError(msg)
