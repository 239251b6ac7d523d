"""Start a driver on a standalone Spark cluster through the REST server of its master, follow it, and end it.

`spark-submit` itself cannot start a Python driver on a standalone cluster. The request of this module starts
`spark-submit` on a worker, as Spark's documentation shows for Python programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from backstream.errors import JobError, SpecError

FINISHED = "FINISHED"
UNKNOWN = "UNKNOWN"
"""The state of a driver that the master doesn't know, e.g., after its restart."""
_ENDS = (FINISHED, "FAILED", "KILLED", "ERROR")
_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
_DEFAULT_PORT = 6066
_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """A standalone cluster: the address of its master, and that of the REST server of the master."""

    master: str
    url: str

    @classmethod
    def from_connection(cls, master: str, extra: Mapping[str, Any]) -> StandaloneCluster:
        """Return the cluster of an Airflow connection; `extra` may have `rest-scheme` and `rest-port`.

        Raises:
            SpecError: when the address names several masters, or none.
        """
        host = urlsplit(master).hostname
        if not host or "," in master:
            msg = f"a driver on a standalone cluster needs the address of one master, got {master!r}"
            raise SpecError(msg)
        return cls(master, f"{extra.get('rest-scheme', 'http')}://{host}:{extra.get('rest-port', _DEFAULT_PORT)}")

    def submit(self, arguments: Sequence[str], settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
        """Start a driver on a worker, and return its id.

        Args:
            arguments: words after `spark-submit`.
            settings: Spark's settings for the Java process of the driver.
            environment: variables of the driver.

        Raises:
            JobError: when the master cannot be reached, or doesn't start the driver.
        """
        answer = self._call(
            "create",
            {
                "action": "CreateSubmissionRequest",
                "appArgs": list(arguments),
                "appResource": "",
                "clientSparkVersion": "",
                "environmentVariables": dict(environment),
                "mainClass": _MAIN_CLASS,
                "sparkProperties": {"spark.jars": "", **settings, "spark.master": self.master},
            },
        )
        if not answer.get("success"):
            reason = answer.get("message", "it gave no reason")
            msg = f"the Spark master did not start the driver: {reason} ({self.url})"
            raise JobError(msg)
        return str(answer["submissionId"])

    def load_state(self, driver_id: str) -> str:
        """Return the state of a driver, such as `SUBMITTED`, `RUNNING`, or `FINISHED`.

        Raises:
            JobError: when the master cannot be reached.
        """
        return str(self._call(f"status/{driver_id}").get("driverState", UNKNOWN))

    def kill(self, driver_id: str) -> None:
        """End a driver; one that has ended stays as it is.

        Raises:
            JobError: when the master cannot be reached.
        """
        self._call(f"kill/{driver_id}", {})

    def _call(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = Request(  # noqa: S310 - the scheme is that of the connection
            f"{self.url}/v1/submissions/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json;charset=UTF-8"},
        )
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - as above
                answer: dict[str, Any] = json.load(response)
        except HTTPError as error:
            msg = f"the REST server of the Spark master answered {error.code} {error.reason} ({self.url})"
            raise JobError(msg) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            msg = (
                f"cannot reach the REST server of the Spark master: {reason} ({self.url})\n\n"
                "hint: set spark.master.rest.enabled = true for the master, and `rest-port` in the extra of the"
                " connection"
            )
            raise JobError(msg) from None
        return answer


def has_ended(state: str) -> bool:
    """Return whether a driver in this state runs no longer."""
    return state in _ENDS
