"""Which version of what this package writes a table holds; what a newer one wrote is neither read nor changed."""

from __future__ import annotations

from pyiceberg.table import Table

from backstream import __version__
from backstream.core.errors import PlanError

FORMAT = "backstream.format"
"""Table property: the version of the format."""
FORMAT_VERSION = 1
MADE_BY = "backstream.made_by"
"""Table property: the version of backstream that made the table."""
DEFINITION = "backstream.definition"
"""Table property: the absolute path of the definition that writes the table."""
KEYS = "backstream.keys"
"""Table property: the key columns of its rows, a JSON list."""


def known(table: Table) -> Table:
    """The table, if this version knows its format: a newer one may mean by its columns what this one cannot know.

    Raises:
        PlanError: naming both versions.
    """
    found = table.properties.get(FORMAT, str(FORMAT_VERSION))
    if found.isdecimal() and int(found) <= FORMAT_VERSION:
        return table
    msg = (
        f"table `{table.name()[-1]}` has format {found}, and backstream {__version__} knows formats up to"
        f" {FORMAT_VERSION}\n  it was made by backstream {table.properties.get(MADE_BY, 'of an unknown version')}"
        "\n\nhint: update backstream here, or point BACKSTREAM_HOME and BACKSTREAM_CATALOG_URI at another lake"
    )
    raise PlanError(msg)
