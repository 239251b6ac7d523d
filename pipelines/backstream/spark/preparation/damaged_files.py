"""Explain the errors of Spark about raw files that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from backstream.errors import ContractError
from backstream.spark.preparation.expressions import first_sentence
from backstream.spark.preparation.settings import Preparation

_FAILED_FILE = re.compile(r"FAILED_READ_FILE\S*\] \D*? file (\S+)\. ")
_CAUSE = re.compile(r"^\s*Caused by: [\w.$]*?(\w+(?:: .*)?)$", re.MULTILINE)


class DamagedFileError(ContractError):
    """A raw file cannot be read."""

    def __init__(self, path: str, reason: str, where: str) -> None:
        super().__init__(
            f"cannot read input file {path}: {reason} ({where}, source.path)\n\n"
            'hint: restore the file, move it away, or set source.corrupt_files = "skip"'
        )
        self.path, self.reason = path, reason


@contextmanager
def explain_damaged_files(preparation: Preparation) -> Iterator[None]:
    """Convert Spark's errors about a file into `DamagedFileError`.

    Raises:
        DamagedFileError: with the file, and the innermost reason.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)  # the file is in the message of an inner cause
        failed = _FAILED_FILE.search(text)
        if isinstance(error, AnalysisException):
            msg = f"Spark cannot read the source: {first_sentence(error)} ({preparation.where}, source.path)"
            raise ContractError(msg) from None
        if failed is None:
            raise
        causes = _CAUSE.findall(text[failed.end() :])
        reason = causes[-1] if causes else "Spark cannot read it"
        path = unquote(urlparse(failed[1]).path)
        raise DamagedFileError(preparation.addresses.get(path, path), reason, preparation.where) from None
