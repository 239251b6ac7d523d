"""Explain the errors of Spark about raw files that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from backstream.errors import ContractError, StorageError
from backstream.source.reader import UnreadableError
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
def explain_damaged_files(preparation: Preparation, paths: Sequence[str]) -> Iterator[None]:
    """Convert errors about one of these files into `DamagedFileError`.

    Raises:
        DamagedFileError: with the file, and the innermost reason.
        StorageError: when a file was removed since it was listed; the next preparation lists the files again.
    """
    try:
        yield
    except UnreadableError as error:
        address = preparation.addresses.get(error.path, error.path)
        raise DamagedFileError(address, error.reason, preparation.where) from None
    except (PySparkException, Py4JJavaError, FileNotFoundError) as error:
        if removed := next((path for path in paths if not Path(path).exists()), None):
            address = preparation.addresses.get(removed, removed)
            msg = (
                f"input file {address} was removed while it was prepared ({preparation.where}, source.path)\n\n"
                "hint: repeat the command; it reads the files that are there then"
            )
            raise StorageError(msg) from None
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
