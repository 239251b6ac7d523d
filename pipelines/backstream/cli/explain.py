"""Define the commands `explain` and `verify`, which recompute published rows with the reference engine."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from backstream.cli.app import OutputFormat, OutputFormatOption, app, report_errors
from backstream.cli.history import DatasetArgument, dataset_name
from backstream.errors import SpecError
from backstream.runs.home import Home

_SEEDS = 1_000_000


@app.command("explain")
def explain_command(
    dataset: DatasetArgument,
    window: Annotated[
        str,
        typer.Option(
            metavar="START[/END]",
            help="Start of the window, e.g., 2013-02-09T10:00Z; with the end if several windows start then",
        ),
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Value of a key column, e.g., carrier=AA, or carrier for null"),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="FILES|TABLE", help="Output of the live system, as in `backstream reconcile`"),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(metavar="NAME=THEIRS,..", help="Columns of the live output, as in `backstream reconcile`"),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of records")] = 20,
    form: OutputFormatOption = OutputFormat.TABLE,
) -> None:
    """Explain a published row: its records in arrival order, their watermarks and fates, and the firings.

    The reference engine recomputes the row from the input files, record by record, and compares it with the table.
    No Spark starts.  With more records than --limit, those that were not on time come first, and the others are
    a sample.

    Exit status 0: the reference engine agrees with the table; 1: it differs.

    Example: `backstream explain flights --window 2013-02-09T10:00Z --key carrier=AA`
    """
    from backstream.workflow.explain import compare_with_live, explain_window
    from backstream.workflow.explanation import explanation_json, explanation_text

    with report_errors():
        home, name = Home.from_environment(), dataset_name(dataset)
        found = explain_window(home, name, window, _parse_key(key or []))
        live = compare_with_live(found, against, columns, home) if against else []
        if form is OutputFormat.JSON:
            print(json.dumps(explanation_json(found, limit) | ({"live": live} if against else {}), indent=1))
        else:
            typer.echo(explanation_text(found, limit, _style))
            for line in live:
                typer.echo(f"live system    {line}")
        if not found.is_confirmed:
            raise typer.Exit(1)


@app.command("verify")
def verify_command(
    run: Annotated[str, typer.Argument(metavar="RUN|DEFINITION", help="Run id, or a definition: its newest run")],
    sample: Annotated[int, typer.Option(min=1, help="Number of rows to recompute")] = 200,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the sample: the same seed draws the same rows. Default: at random")
    ] = None,
    form: OutputFormatOption = OutputFormat.TABLE,
) -> None:
    """Recompute a random sample of the rows of a run from its input files, and compare them with the table.

    Windows with late records, at the edges of chunks, and the first and the last one are likelier.  The command
    also detects changed or removed input files, and a changed definition or code.  The receipt is in the folder
    and in the report of the run.

    Exit status 0: everything agrees; 1: something differs.

    Example: `backstream verify flights --sample 200 --seed 7`
    """
    from backstream.cli.reports import load_requested_plan
    from backstream.workflow.verify import list_findings, receipt_text, verify_run

    with report_errors():
        plan = load_requested_plan(run, None, None, None)
        drawn = random.randrange(_SEEDS) if seed is None else seed  # noqa: S311 - a sample, not a secret
        receipt = verify_run(plan, sample, drawn)
        if form is OutputFormat.JSON:
            print(json.dumps(asdict(receipt), indent=1))
        else:
            typer.echo("\n".join(receipt_text(receipt)))
            typer.echo()
            for finding in list_findings(receipt):
                typer.echo(_style(f"DIFFERS: {finding}", "red"))
            if receipt.is_confirmed:
                typer.echo(_style("the reference engine agrees with the table", "green"))
        if not receipt.is_confirmed:
            raise typer.Exit(1)


def _parse_key(texts: list[str]) -> dict[str, str | None]:
    """Return the values of key columns by name; a name alone is null.

    Raises:
        SpecError: when a text has no name, or a name occurs twice.
    """
    values: dict[str, str | None] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not name or name in values:
            msg = f"--key must be NAME=VALUE, or NAME for null, once for each key column, got {text!r}"
            raise SpecError(msg)
        values[name] = value if separator else None
    return values


def _style(text: str, color: str) -> str:
    """Return a text in a color; without it where standard output is no terminal."""
    return typer.style(text, fg=color, bold=color == "red") if sys.stdout.isatty() else text
