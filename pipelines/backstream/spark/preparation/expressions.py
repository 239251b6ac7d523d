"""Resolve SQL expressions of a definition over the columns of raw files."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.definition.prepared_columns import FILE
from backstream.errors import SpecError
from backstream.spark.preparation.settings import MALFORMED, Preparation


def resolve_expression(rows: DataFrame, key: str, expression: str, preparation: Preparation) -> Column:
    """Return an expression over the columns of the files.

    Raises:
        SpecError: with the key, and the columns of the files, if Spark cannot resolve it.
    """
    try:
        column = F.expr(expression)
        rows.select(column).schema  # noqa: B018 - it resolves the columns
    except AnalysisException as error:
        reason = first_sentence(error)
        names = ", ".join(name for name in rows.columns if name not in (MALFORMED, FILE))
        msg = (
            f"{key} cannot be computed from the source: {reason} ({preparation.where})"
            f"\n\nhint: the source has {names}"
        )
        raise SpecError(msg) from None
    return column


def first_sentence(error: AnalysisException) -> str:
    """Return the reason of an error of Spark, in one line."""
    return " ".join(str(error).partition("SQLSTATE")[0].split())
