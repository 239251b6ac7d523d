"""Define the command `preview`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from backstream.cli.app import (
    OPTION_NAMES,
    DefinitionArgument,
    ModeOption,
    OutputFormat,
    OutputFormatOption,
    SinceOption,
    TimeZoneOption,
    UntilOption,
    app,
    report_errors,
)
from backstream.cli.prepare import prepare_request
from backstream.cli.run import cli_request
from backstream.errors import SpecError
from backstream.eventtime.intervals import require_range_of_days
from backstream.runs.choices import RunChoices
from backstream.text import print_text
from backstream.workflow.requested_range import parse_range
from backstream.workflow.runners import choose_runner, runner_on_demand


@app.command("preview")
def preview_command(
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    time_zone: TimeZoneOption = None,
    mode: ModeOption = None,
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the keys to compute, e.g., 5%. Default: 1%, or more if these are fewer than 50 keys",
        ),
    ] = None,
    form: OutputFormatOption = OutputFormat.TABLE,
) -> None:
    """Show the rows that a run would change, the causes, and the cost of the run.

    The rows of a sample of keys are computed exactly, with the watermarks of the whole stream.  The numbers for
    all keys are estimates with an interval that holds in 95 of 100 samples.  Nothing is published.

    Example: `backstream preview flights --since 2013-02-01 --until 2013-03-01 --keys 5%`
    """
    from backstream.workflow.preview.preview import preview_run

    with report_errors(definition):
        share = None if keys is None else _parse_share(keys)
        requested = parse_range(since, until, time_zone, OPTION_NAMES)
        require_range_of_days(requested.interval)
        request = cli_request(RunChoices(mode=mode, is_unsealed_allowed=True), definition, requested)
        prepare_request(request)
        if requested.local_days:
            print_text(f"notice: {requested.local_days.describe}", file=sys.stderr)
        with runner_on_demand(request.definition, choose_runner(request.definition)) as runner:
            found = preview_run(request, runner.session, share)
        print(json.dumps(found.as_json(), indent=1) if form is OutputFormat.JSON else found)


def _parse_share(text: str) -> float:
    """Return a share such as `5%` as a fraction.

    Raises:
        SpecError: when it is not above 0% and up to 100%.
    """
    number = text.removesuffix("%").strip()
    try:
        share = float(number) / 100
    except ValueError:
        share = -1.0
    if not text.endswith("%") or not 0 < share <= 1:
        msg = f"--keys must be a share above 0% and up to 100%, such as 5%, got {text!r}"
        raise SpecError(msg)
    return share
