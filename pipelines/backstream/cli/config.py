"""Define the command `config`, which prints every setting and its source."""

from __future__ import annotations

import json

import typer

from backstream.cli.app import OutputFormat, OutputFormatOption, app, report_errors
from backstream.runs.home import Home


@app.command("config")
def config_command(context: typer.Context, form: OutputFormatOption = OutputFormat.TABLE) -> None:
    """Print every setting with its value and its source; secrets are masked.

    An environment variable overrides the file `.env` of the project, and `.env` overrides `backstream.toml`. The
    project is the nearest folder with a `backstream.toml`, from the working directory upwards.

    Example: `backstream config`
    """
    from backstream.workflow.effective_settings import effective_settings

    with report_errors():
        settings = list(effective_settings(context.obj, Home.from_environment()))
    if form is OutputFormat.JSON:
        rows = [{"key": each.key, "value": each.text, "source": each.source} for each in settings]
        print(json.dumps(rows, indent=2))
        return
    key_width = max(len(each.key) for each in settings)
    for each in settings:
        print(f"{each.key.ljust(key_width)}  {each.text}")
        print(f"{' ' * key_width}  from {each.source}")
