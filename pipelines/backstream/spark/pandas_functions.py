"""Wrap functions of pandas series for Spark; a module of its own, since it imports pandas."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pyspark.sql.pandas.functions import pandas_udf

from backstream.user_code import UserCode


def pandas_function(target: str, returns: str) -> Any:
    """Return the function as Spark needs it: from a series per argument to a series of values.

    Args:
        target: the function, `package.module:function`.
        returns: the type of the values in Spark SQL.
    """

    def run(*columns: pd.Series) -> pd.Series:
        values: pd.Series = UserCode("function", target).load_any_function()(*columns)
        return values

    return pandas_udf(run, returns)  # type: ignore[call-overload] # its overloads lack a varying number of series
