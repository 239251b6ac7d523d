"""Look at the pods of a job on Kubernetes: their states, the log of the driver, and why a pod does not start."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from backstream.errors import JobError, SetupError, SpecError

JOB_LABEL = "backstream-job"
"""The label of the driver and of the executors of a job; its value is the key of the job."""
START_LIMIT_S = 600
"""The default limit for pods that wait for a node: an autoscaler needs minutes to add one."""
REASON_LINES = 500
"""The last lines of a log that are searched for a reason."""
_IMAGE_LIMIT_S = 60.0
"""The limit for a container that cannot be created: a retry of the task tries again later."""
_TIMEOUT_S = 10
_GONE_LIMIT_S, _GONE_POLL_S = 90.0, 0.5
_NOT_FOUND = 404
_INVALID = (400, 422)
_STARTS = (None, "ContainerCreating", "PodInitializing")
"""The reasons of a container that waits as every container does."""
_IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_OUT_OF_MEMORY = "OOMKilled"
_LOG_MARGIN_S = 60
"""The clocks of the nodes and of this machine may differ by this."""
_REFUSED = re.compile(r"[a-z.]+ (?:\"[^\"]*\" )?is forbidden: [^\n]*?(?=\.? Received status|\.?$)")
_HAS_NO_RIGHT = re.compile(r"User \"[^\"]*\" cannot ")
_ERROR_LINE = re.compile(
    r"^(?:Exception in thread \"[^\"]*\" |Caused by: )?((?:[\w$]+\.)*\w*(?:Error|Exception): .+)$"
)
_GIVEN_UP = re.compile(r"Max number of executor failures \(\d+\) reached")


def find_reason(lines: Sequence[str]) -> tuple[str, bool]:
    """Return why a driver or `spark-submit` failed, by its log, and whether that is certain.

    A refusal by Kubernetes is certain if it is about rights, or if Spark gave up after it. The errors after it are
    its consequences. The text is empty if the log doesn't show a reason.
    """
    has_given_up = any(_GIVEN_UP.search(line) for line in lines)
    refusals = [found[0] for line in lines if (found := _REFUSED.search(line))]
    rights = [refusal for refusal in refusals if _HAS_NO_RIGHT.search(refusal)]
    if refused := (rights or refusals)[:1]:
        what = "executors" if has_given_up else "request"
        return f"Kubernetes refused its {what}: {refused[0]}", has_given_up or bool(rights)
    if has_given_up:
        return "its executors failed again and again", True
    errors = [found[1] for line in lines if (found := _ERROR_LINE.match(line.strip()))]
    return (errors[-1] if errors else ""), False


def pod_label_settings(key: str) -> dict[str, str]:
    """Return the settings of Spark that label the pods of a job."""
    return {f"spark.kubernetes.{role}.label.{JOB_LABEL}": key for role in ("driver", "executor")}


@contextmanager
def explain_api_errors(action: str) -> Iterator[None]:
    """Convert errors of the client of Kubernetes.

    Raises:
        JobError: with the action, and the answer of the API server.
        SetupError: when there is no configuration for the client.
    """
    from kubernetes.client import ApiException
    from kubernetes.config import ConfigException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        msg = f"Kubernetes refused to {action}: {_message(error)}"
        raise JobError(msg) from None
    except ConfigException as error:
        msg = (
            f"no configuration for the API of Kubernetes: {error}\n\n"
            "hint: set KUBECONFIG, or run Airflow in the cluster with a service account"
        )
        raise SetupError(msg) from None
    except (HTTPError, OSError) as error:
        reason = str(getattr(error, "reason", error)).rpartition(": ")[2]
        msg = f"cannot {action}: the API of Kubernetes does not answer ({reason})"
        raise JobError(msg) from None


def _message(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"


@dataclass(slots=True)
class KubernetesPods:
    """The pods of jobs in a namespace.

    Attributes:
        master: address of the API server as Spark's master, e.g., `k8s://https://cluster:6443`.
        namespace: namespace of the pods.
        start_limit_s: time that pods may wait for a node, in seconds.
    """

    master: str
    namespace: str
    start_limit_s: float = START_LIMIT_S
    _api: Any = None
    _stage: list[str] | None = None
    _stalled_since_s: float = 0.0

    def client(self) -> Any:
        """Return the API client, with the configuration that `spark-submit` uses, too.

        Raises:
            SetupError: when there is no configuration.
        """
        if self._api is None:
            from kubernetes import client, config

            configuration = client.Configuration()
            with explain_api_errors("read the configuration"):
                config.load_config(client_configuration=configuration)
            configuration.retries = 0  # another look comes soon
            configuration.host = self.master.removeprefix("k8s://").rstrip("/")
            if "://" not in configuration.host:
                configuration.host = f"https://{configuration.host}"
            self._api = client.ApiClient(configuration)
        return self._api

    @property
    def core(self) -> Any:
        """The API of pods and secrets."""
        from kubernetes.client import CoreV1Api

        return CoreV1Api(self.client())

    def list_pods(self, key: str) -> list[Any]:
        """Return the pods of a job.

        Raises:
            JobError: when the API doesn't answer, or refuses.
        """
        with explain_api_errors(f"list the pods in the namespace {self.namespace}"):
            selector = f"{JOB_LABEL}={key}"
            listed = self.core.list_namespaced_pod(
                self.namespace, label_selector=selector, _request_timeout=_TIMEOUT_S
            )
        return list(listed.items)

    def remove(self, key: str, *, is_waiting: bool = False) -> None:
        """Delete the pods of a job; `is_waiting` waits until they have ended.

        Raises:
            JobError: when the API doesn't answer, or the pods don't end.
        """
        until_s = time.monotonic() + _GONE_LIMIT_S
        while pods := self.list_pods(key):
            for pod in pods:
                if pod.metadata.deletion_timestamp is None:
                    self._delete_pod(pod.metadata.name)
            if not is_waiting:
                return
            if time.monotonic() > until_s:
                msg = f"pod {pods[0].metadata.name} of an earlier attempt does not end ({self.namespace})"
                raise JobError(msg)
            time.sleep(_GONE_POLL_S)

    def require_valid_template(self, template: Mapping[str, Any], where: str) -> None:
        """Check a pod template of the user, whose unknown fields Spark and the operator ignore silently.

        Raises:
            JobError: when the API doesn't answer.
            SpecError: when the API server refuses a pod with it.
        """
        from kubernetes.client import ApiException

        spec = dict(template.get("spec") or {})
        spec["containers"] = [
            {"name": "spark", "image": "spark", **each} for each in spec.get("containers") or [{}]
        ]
        pod = {"metadata": {**(template.get("metadata") or {}), "generateName": "backstream-"}, "spec": spec}
        pod["metadata"].pop("name", None)
        options = {"dry_run": "All", "field_validation": "Strict", "_request_timeout": _TIMEOUT_S}
        with explain_api_errors("check a pod template"):
            try:
                self.core.create_namespaced_pod(self.namespace, pod, **options)
            except ApiException as error:
                if error.status in _INVALID:  # another error, such as a quota, says nothing about the template
                    msg = f"the pod template is not valid: {_message(error)} ({where})"
                    raise SpecError(msg) from None

    def _delete_pod(self, name: str) -> None:
        from kubernetes.client import ApiException

        with explain_api_errors(f"delete the pod {name}"):
            try:
                self.core.delete_namespaced_pod(name, self.namespace, _request_timeout=_TIMEOUT_S)
            except ApiException as error:
                if error.status != _NOT_FOUND:
                    raise

    def find_stall(self, pods: Sequence[Any], missing: str = "") -> str:
        """Return why a job does not go on, after the limit for it; empty before, and if it goes on.

        Args:
            pods: driver and executors of the job.
            missing: why there is no pod at all; it counts like a pod that waits.
        """
        needed = _find_needed(pods)
        waits = [_describe_pending_pod(pod) for pod in needed] if pods else [(missing, False)]
        cause, is_broken = next((wait for wait in waits if wait[1]), waits[0] if waits else ("", False))
        now_s, stage = time.monotonic(), [pod.metadata.name for pod in needed if _is_driver(pod)]
        if not cause or self._stage != stage:
            self._stage, self._stalled_since_s = stage, now_s
        waited_s = now_s - self._stalled_since_s
        limit_s = min(_IMAGE_LIMIT_S, self.start_limit_s) if is_broken else self.start_limit_s
        return f"{cause} (waited {waited_s:.0f} seconds)" if cause and waited_s >= limit_s else ""

    def read_driver_log(self, name: str, position: str) -> tuple[list[str], str]:
        """Return the lines of a driver's log after a position, which is the time of a line, and the next position.

        Raises:
            JobError: when the API doesn't answer.
        """
        from kubernetes.client import ApiException

        since = None
        if position:
            age = datetime.now(UTC) - datetime.fromisoformat(f"{position[:19]}+00:00")
            since = max(int((age + timedelta(seconds=_LOG_MARGIN_S)).total_seconds()), 1)
        with explain_api_errors(f"read the log of the pod {name}"):
            try:
                answer = self.core.read_namespaced_pod_log(
                    name,
                    self.namespace,
                    timestamps=True,
                    since_seconds=since,
                    container=None,
                    _preload_content=False,
                    _request_timeout=_TIMEOUT_S,
                )
            except ApiException:  # the container has not started, or the pod is gone
                return [], position
            text = answer.data.decode("utf-8", "replace")
        lines = []
        for line in text.splitlines():
            stamp, _, content = line.partition(" ")
            if (time_of_line := _sortable(stamp)) > position:
                lines.append(content)
                last = time_of_line
        return lines, last if lines else position


def _sortable(stamp: str) -> str:
    """Return a time in RFC 3339 with all nine digits of a second, so that texts have the order of times."""
    second, _, fraction = stamp.rstrip("Z").partition(".")
    return f"{second}.{fraction:0<9}"


def _find_needed(pods: Sequence[Any]) -> list[Any]:
    """Return the pods without which a job waits: the driver, then its first executors; empty if the job works."""
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    drivers = [pod for pod in alive if _is_driver(pod) and pod.status.phase == "Pending"]
    needed = drivers or [pod for pod in alive if not _is_driver(pod)]
    return needed if all(pod.status.phase == "Pending" for pod in needed) else []


def _is_driver(pod: Any) -> bool:
    return (pod.metadata.labels or {}).get("spark-role") == "driver"


def _describe_pending_pod(pod: Any) -> tuple[str, bool]:
    """Return why a pod does not start, and whether its container cannot be created."""
    name, status = pod.metadata.name, pod.status
    images = {each.name: each.image for each in pod.spec.containers}
    for container in [*(status.init_container_statuses or []), *(status.container_statuses or [])]:
        waiting = container.state.waiting if container.state else None
        if waiting is None or waiting.reason in _STARTS:
            continue
        image = container.image or images.get(container.name, "")
        if waiting.reason in _IMAGE_REASONS:
            return f"the image {image!r} of pod {name} cannot be pulled ({waiting.reason})", True
        return f"the container of pod {name} cannot start: {waiting.reason} {waiting.message or ''}".strip(), True
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"no node takes pod {name}: {condition.message or condition.reason}", False
    return f"pod {name} does not start", False


def find_driver_end(pod: Any) -> tuple[int, str] | None:
    """Return the exit status of a driver, and the cause that Kubernetes knows; None while it runs.

    The container counts and not the pod: a container beside it can run on.
    """
    for container in pod.status.container_statuses or []:
        ended = container.state.terminated if container.state else None
        if ended is None or (len(pod.spec.containers) > 1 and "driver" not in container.name):
            continue
        if ended.reason == _OUT_OF_MEMORY:
            return ended.exit_code, (
                "the container of the driver had no memory left (OOMKilled); increase spark.driver.memoryOverhead"
            )
        return ended.exit_code, ""
    if pod.status.phase == "Failed":  # e.g., it was evicted, and its containers are gone
        return 1, f"its pod failed: {pod.status.reason or 'no reason'} {pod.status.message or ''}".strip()
    return None
