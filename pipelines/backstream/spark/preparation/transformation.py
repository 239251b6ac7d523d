"""Call the transformation of the user, and explain its errors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from pyspark.sql import DataFrame

from backstream.errors import SpecError
from backstream.spark.preparation.settings import Preparation


def transform_records(rows: DataFrame, preparation: Preparation) -> DataFrame:
    """Return the rows after `source.transform`.

    Raises:
        SpecError: when the function cannot be loaded, or returns something else.
    """
    if preparation.transformation is None:
        return rows
    sides = preparation.side_inputs
    function = preparation.transformation.load_function(1, dict.fromkeys(sides, "a DataFrame"))
    transformed = function(rows, **sides)
    if not isinstance(transformed, DataFrame):
        kind = type(transformed).__name__
        msg = f"{preparation.transformation} must return a DataFrame, got {kind} ({preparation.where})"
        raise SpecError(msg)
    return transformed


def explain_transformation(preparation: Preparation, paths: Sequence[str]) -> AbstractContextManager[None]:
    """Convert an exception of the transformation into an error with its own lines and the raw files."""
    if preparation.transformation is None:
        return nullcontext()
    more = f" and {len(paths) - 1:,} more files" if len(paths) > 1 else ""
    return preparation.transformation.explain_errors(f"over {paths[0]}{more}")
