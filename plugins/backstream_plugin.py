"""Register the pages of backstream, for an Airflow that finds no installed package with an entry point."""

from __future__ import annotations

from importlib.metadata import entry_points

# Airflow reports an error for a plugin that it finds twice.
if not entry_points(group="airflow.plugins", name="backstream"):
    from backstream.ui.plugin import BackstreamPlugin

    __all__ = ["BackstreamPlugin"]
