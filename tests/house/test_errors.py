"""Which errors are worth a retry is said by their classes, and known for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import backstream
from backstream.errors import HOPELESS_STATUS, BackstreamError, JobError

PACKAGE = Path(backstream.__path__[0])
USER_INTERFACES = ("backstream.orchestration", "backstream.ui")
IS_RETRYABLE = {
    "AuditError": True,
    "BackstreamError": True,
    "CatalogError": True,
    "CommitError": True,
    "ConflictError": False,
    "ContractError": False,
    "CountError": True,
    "HeapError": True,
    "JobError": True,
    "LedgerError": True,
    "PlanError": False,
    "QualityError": False,
    "RangeError": False,
    "RefusedError": False,
    "SetupError": True,
    "SpecError": False,
    "StorageError": True,
    "UnreadableError": False,
    "UnsupportedCaseError": False,
}


def kinds(kind: type[BackstreamError]) -> Iterator[type[BackstreamError]]:
    """A kind of error and those below it in this package; other tests may have imported more, as the demo's."""
    if kind.__module__.startswith("backstream.") and not kind.__module__.startswith(USER_INTERFACES):
        yield kind
    for each in kind.__subclasses__():
        yield from kinds(each)


def test_of_every_error_it_is_known_whether_a_retry_may_help() -> None:
    for module in walk_packages(backstream.__path__, "backstream."):
        if not module.name.startswith(USER_INTERFACES) and not module.name.endswith("__main__"):
            import_module(module.name)

    assert {kind.__name__: kind.is_retryable for kind in kinds(BackstreamError)} == IS_RETRYABLE


def test_it_is_asked_in_one_place_for_tasks_and_in_one_for_jobs() -> None:
    sources = {file.relative_to(PACKAGE): file.read_text() for file in PACKAGE.rglob("*.py")}
    asking = {
        str(file) for file, text in sources.items() if ".is_retryable:" in text or ".is_retryable else" in text
    }

    assert asking == {"orchestration/tasks.py", "jobs/replay.py"}
    assert [str(file) for file, text in sources.items() if "raise AirflowFailException" in text] == [
        "orchestration/tasks.py"
    ]


def test_a_job_is_retried_unless_its_exit_status_says_that_it_is_no_use() -> None:
    assert [JobError("ended", status).is_retryable for status in (None, 1, HOPELESS_STATUS, 52)] == [
        *(True, True, False, True)
    ]
