"""The verb that shows a definition day by day."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from backstream.cli.app import DefinitionArgument, SinceOption, UntilOption, app, definition_path, errors_in_words
from backstream.cli.stale import JsonFlag
from backstream.core.folders import Home
from backstream.core.instants import instant_ms, instant_text
from backstream.core.intervals import backfill_range, require_whole_days

if TYPE_CHECKING:
    from backstream.steps.days import Day

_UNKNOWN = "not asked"
"""Where a definition has no `backfill.horizon`, or no arrival times."""


@app.command()
def days(
    definition: DefinitionArgument, since: SinceOption, until: UntilOption, as_json: JsonFlag = False
) -> None:
    """Show each day of a range: whether it can still gain events, and which run published it.

    sealed: every partition of `quality.partitions` has delivered something later than the day's end and
    `backfill.horizon`, or is idle.  empty: the same, without an event.  open: no partition has come so far.
    missing: some have, and others have not.

    Example: `backstream days flights --since 2013-02-01 --until 2013-03-01`
    """
    from backstream.steps.days import days as days_of

    with errors_in_words():
        interval = backfill_range(instant_ms(since, "--since"), instant_ms(until, "--until"))
        for value_ms, name in ((interval.start_ms, "since"), (interval.end_ms, "until")):
            require_whole_days(value_ms, name)
        found = days_of(definition_path(definition), interval, Home.from_environment())
        if as_json:
            print(json.dumps([_content(day) for day in found], indent=1))
        else:
            print("\n".join([f"{'day':<10}  {'seal':<9}  published by", *(_line(day) for day in found)]))


def _content(day: Day) -> dict[str, object]:
    seal = day.evidence and {"seal": day.evidence.seal.value, "reason": day.evidence.reason}
    return {"day": instant_text(day.day_ms)[:10], "runs": list(day.runs), **(seal or {"seal": None, "reason": ""})}


def _line(day: Day) -> str:
    seal = day.evidence.seal if day.evidence else _UNKNOWN
    reason = f"  ({day.evidence.reason})" if day.evidence and day.evidence.reason else ""
    return f"{instant_text(day.day_ms)[:10]}  {seal:<9}  {', '.join(day.runs) or '-'}{reason}"
