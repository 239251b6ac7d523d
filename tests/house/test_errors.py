"""Test that every error class declares whether a retry is useful, and that few places use the declaration."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import backstream
from backstream.errors import NO_RETRY_STATUS, BackstreamError, JobError

PACKAGE = Path(backstream.__path__[0])
USER_INTERFACES = ("backstream.airflow", "backstream.orchestration", "backstream.ui")
IS_RETRYABLE = {
    "AuditError": True,
    "BackstreamError": True,
    "CatalogError": True,
    "CommitError": True,
    "ConflictError": False,
    "ContractError": False,
    "DamagedFileError": False,
    "CountError": True,
    "HeapError": True,
    "JobError": True,
    "LedgerError": True,
    "NoResponseError": True,
    "NotNativeError": False,
    "PlanError": False,
    "QualityError": False,
    "RangeError": False,
    "RejectedError": False,
    "SetupError": True,
    "SpecError": False,
    "StepError": False,
    "StorageError": True,
    "UnreadableError": False,
    "UnsupportedCaseError": False,
    "UserCodeError": False,
}


def error_classes(error_class: type[BackstreamError]) -> Iterator[type[BackstreamError]]:
    """Return an error class of this package with its subclasses.

    Other tests may import more classes, such as those of the demo.
    """
    if error_class.__module__.startswith("backstream.") and not error_class.__module__.startswith(USER_INTERFACES):
        yield error_class
    for subclass in error_class.__subclasses__():
        yield from error_classes(subclass)


def test_every_error_class_declares_whether_a_retry_is_useful() -> None:
    for module in walk_packages(backstream.__path__, "backstream."):
        if not module.name.startswith(USER_INTERFACES) and not module.name.endswith("__main__"):
            import_module(module.name)

    assert {
        error_class.__name__: error_class.is_retryable for error_class in error_classes(BackstreamError)
    } == IS_RETRYABLE


def test_one_place_for_tasks_and_one_for_jobs_read_the_declaration() -> None:
    sources = {file.relative_to(PACKAGE): file.read_text() for file in PACKAGE.rglob("*.py")}
    readers = {
        str(file) for file, text in sources.items() if ".is_retryable:" in text or ".is_retryable else" in text
    }

    assert readers == {"orchestration/tasks.py", "jobs/job_process.py"}
    assert [str(file) for file, text in sources.items() if "raise AirflowFailException" in text] == [
        "orchestration/tasks.py"
    ]


def test_a_job_is_retried_except_after_one_exit_status() -> None:
    assert [JobError("ended", status).is_retryable for status in (None, 1, NO_RETRY_STATUS, 52)] == [
        *(True, True, False, True)
    ]
