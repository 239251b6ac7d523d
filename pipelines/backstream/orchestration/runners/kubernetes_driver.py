"""Run the driver of a job in a pod on Kubernetes, by `spark-submit` or by the Spark operator.

Both ways share a pod template, a secret with the variables of the driver, and the look at the pods. The exit
status of `spark-submit` decides nothing: in the deploy mode `cluster` it is 0 even if the driver failed.
"""

from __future__ import annotations

import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from backstream.errors import JobError, SpecError
from backstream.orchestration.runners.job_runner import JobPhase, JobState, SparkJob
from backstream.orchestration.runners.kubernetes_pods import (
    JOB_LABEL,
    REASON_LINES,
    START_LIMIT_S,
    KubernetesPods,
    explain_api_errors,
    find_driver_end,
    find_reason,
    pod_label_settings,
)
from backstream.orchestration.runners.spark_command import spark_command
from backstream.orchestration.runners.spark_submit import describe_signal
from backstream.orchestration.runners.stored_driver import (
    LAUNCHER,
    launcher_text,
    require_home_in_store,
    stored_environment,
)
from backstream.spark.heap import load_defaults

IMAGE = "spark.kubernetes.container.image"
TEMPLATE = "spark.kubernetes.{role}.podTemplateFile"
_MOUNT = "/opt/backstream"
LAUNCHER_FILE = f"local://{_MOUNT}/{LAUNCHER}"
_DRIVER_CONTAINER = "spark-kubernetes-driver"
_SUBMIT_LIMIT_S = 300
TIMEOUT_S = 10
_NOT_FOUND = 404


@dataclass(slots=True)
class KubernetesDriver(ABC):
    """A namespace on Kubernetes where drivers run in pods.

    Attributes:
        conn_id: Airflow connection to Spark.
        master: address of the API server as Spark's master.
        namespace: namespace of the pods.
        start_limit_s: time that pods may wait for a node, in seconds.
    """

    is_detached: ClassVar[bool] = True

    conn_id: str
    master: str
    namespace: str
    start_limit_s: float = START_LIMIT_S
    pods: KubernetesPods = field(init=False)

    def __post_init__(self) -> None:
        """Keep the pods, which count how long the job waits."""
        self.pods = KubernetesPods(self.master, self.namespace, self.start_limit_s)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the runner."""
        names = ("conn_id", "master", "namespace", "start_limit_s")
        return {name: getattr(self, name) for name in names}

    def submit(self, job: SparkJob, error_location: str) -> str:
        """Start the driver in a pod, and return the key of the job.

        Raises:
            JobError: when Kubernetes refuses, or `spark-submit` fails.
            SpecError: when there is no image, or the home is a folder.
        """
        require_home_in_store(job, "on Kubernetes")
        defaults = load_defaults()
        if IMAGE not in defaults:
            msg = f"a driver on Kubernetes needs an image\n\nhint: set {IMAGE} in spark-defaults.conf"
            raise SpecError(msg)
        for role in ("driver", "executor"):
            if template := load_template(role, defaults):
                self.pods.require_valid_template(template, TEMPLATE.format(role=role))
        self._remove(job.key, is_waiting=True)
        variables = stored_environment(job, error_location)
        self._create_secret(job.key, variables)
        arguments = (job.module, *job.arguments)
        labelled = replace(job, arguments=arguments, settings={**job.settings, **pod_label_settings(job.key)})
        try:
            template = _driver_template(job.key, sorted(variables), defaults)
            owner = self._start(job.key, labelled, defaults, template)
        except Exception:
            self._remove(job.key)
            raise
        self._own_secret(job.key, owner)
        return job.key

    @abstractmethod
    def _start(
        self, key: str, job: SparkJob, defaults: Mapping[str, str], template: dict[str, Any]
    ) -> dict[str, Any]:
        """Start the driver by a pod template, and return the owner reference of what was created."""

    @abstractmethod
    def _describe_missing_driver(self, job_id: str) -> tuple[str, bool]:
        """Return why there is no driver pod, and whether none will come."""

    @abstractmethod
    def _remove_owner(self, key: str) -> None:
        """Delete the object that would start the driver again, if there is one."""

    def driver_name(self, job_id: str) -> str:
        """Return the name of the driver's pod."""
        return f"{job_id}-driver"

    def poll(self, job_id: str) -> JobState:
        """Return the state of a driver by that of its container, and by the pods that wait.

        Raises:
            JobError: when the API doesn't answer.
        """
        pods, name = self.pods.list_pods(job_id), self.driver_name(job_id)
        details = (f"driver pod {self.namespace}/{name}",)
        driver = next((pod for pod in pods if pod.metadata.name == name), None)
        missing = ""
        if driver is None:
            missing, is_final = self._describe_missing_driver(job_id)
            if is_final:
                return JobState(JobPhase.FAILED, missing, details=details, is_certain=True)
        elif ended := find_driver_end(driver):
            status, cause = ended
            if status == 0:
                return JobState(JobPhase.SUCCEEDED, status=0, details=details)
            if driver.metadata.deletion_timestamp is not None:
                cause = "its driver pod was deleted"
                return JobState(JobPhase.FAILED, cause, status, details, is_certain=True)
            reason, is_certain = ("", False) if cause else self._find_reason(name)
            cause = cause or reason or describe_signal(status)
            return JobState(JobPhase.FAILED, cause, status, details, is_certain=is_certain)
        if stall := self.pods.find_stall(pods, missing):
            return JobState(JobPhase.FAILED, stall, details=details, is_certain=True)
        return JobState(JobPhase.RUNNING, details=details)

    def _find_reason(self, name: str) -> tuple[str, bool]:
        """Return why a driver failed, by its log, and whether that is certain."""
        lines, _ = self.pods.read_driver_log(name, "")
        return find_reason(lines[-REASON_LINES:])

    def cancel(self, job_id: str) -> None:
        """End a driver, and remove its pods and its secret.

        Raises:
            JobError: when the API doesn't answer.
        """
        self._remove(job_id)

    def _remove(self, key: str, *, is_waiting: bool = False) -> None:
        self._remove_owner(key)
        self.pods.remove(key, is_waiting=is_waiting)
        self._delete("secret", self.pods.core.delete_namespaced_secret, key)

    def _delete(self, what: str, delete: Any, name: str) -> None:
        from kubernetes.client import ApiException

        with explain_api_errors(f"delete the {what} {name}"):
            try:
                delete(name=name, namespace=self.namespace, _request_timeout=TIMEOUT_S)
            except ApiException as error:
                if error.status != _NOT_FOUND:
                    raise

    def read_log(self, job_id: str, position: str) -> tuple[list[str], str]:
        """Return the lines of the driver's log after a position.

        Raises:
            JobError: when the API doesn't answer.
        """
        return self.pods.read_driver_log(self.driver_name(job_id), position)

    def _create_secret(self, key: str, variables: Mapping[str, str]) -> None:
        body = {
            "metadata": {"name": key, "labels": {JOB_LABEL: key}},
            "stringData": {**variables, LAUNCHER: launcher_text()},
        }
        with explain_api_errors(f"create the secret {key} in the namespace {self.namespace}"):
            self.pods.core.create_namespaced_secret(self.namespace, body, _request_timeout=TIMEOUT_S)

    def _own_secret(self, key: str, owner: Mapping[str, Any]) -> None:
        """Let Kubernetes remove the secret with the driver, if nobody else does."""
        with explain_api_errors(f"change the secret {key}"):
            self.pods.core.patch_namespaced_secret(
                key, self.namespace, {"metadata": {"ownerReferences": [dict(owner)]}}, _request_timeout=TIMEOUT_S
            )


def _driver_template(key: str, variables: list[str], defaults: Mapping[str, str]) -> dict[str, Any]:
    """Return the pod template of a driver: that of the settings, with variables and launcher of a secret.

    Only a template holds without the webhook of the operator, which ignores other fields silently.

    Args:
        key: name of the secret.
        variables: names of the variables in it.
        defaults: settings of Spark, which can name a template of the user.

    Raises:
        SpecError: when the template of the user cannot be read.
    """
    template = load_template("driver", defaults) or {}
    spec = template.setdefault("spec", {})
    containers = spec.setdefault("containers", [])
    wanted = defaults.get("spark.kubernetes.driver.podTemplateContainerName", _DRIVER_CONTAINER)
    container = next((each for each in containers if each.get("name") == wanted), None)
    if container is None:
        container = containers[0] if containers else {}
        containers[:] = containers or [container]
    container["name"] = _DRIVER_CONTAINER
    references = [{"name": name, "valueFrom": {"secretKeyRef": {"name": key, "key": name}}} for name in variables]
    container["env"] = [*(container.get("env") or []), *references]
    mount = {"name": "backstream", "mountPath": _MOUNT, "readOnly": True}
    container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    volume = {"name": "backstream", "secret": {"secretName": key, "items": [{"key": LAUNCHER, "path": LAUNCHER}]}}
    spec["volumes"] = [*(spec.get("volumes") or []), volume]
    return template


def load_template(role: str, defaults: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the user's pod template for drivers or executors; None without one.

    Raises:
        SpecError: when the file cannot be read, or is not a template.
    """
    setting = TEMPLATE.format(role=role)
    if not (file := defaults.get(setting)):
        return None
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        msg = f"cannot read the pod template {file} ({setting}): {error}"
        raise SpecError(msg) from None
    if not isinstance(content, dict):
        msg = f"a pod template must be an object, got {type(content).__name__} ({file}, {setting})"
        raise SpecError(msg)
    return {name: content[name] for name in ("metadata", "spec") if name in content}


@dataclass(slots=True)
class ClusterSubmit(KubernetesDriver):
    """A namespace where `spark-submit` starts drivers, in the deploy mode `cluster`."""

    def _start(
        self, key: str, job: SparkJob, defaults: Mapping[str, str], template: dict[str, Any]
    ) -> dict[str, Any]:
        name = self.driver_name(key)
        with tempfile.TemporaryDirectory(prefix="backstream-") as folder:
            file = Path(folder) / "driver.yaml"
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            file.write_text(yaml.safe_dump(pod), encoding="utf-8")
            settings = {
                **job.settings,
                "spark.kubernetes.namespace": self.namespace,
                "spark.kubernetes.driver.pod.name": name,
                "spark.kubernetes.driver.podTemplateContainerName": _DRIVER_CONTAINER,
                TEMPLATE.format(role="driver"): str(file),
                "spark.kubernetes.submission.waitAppCompletion": "false",
            }
            submitted = replace(job, settings=settings)
            command, _ = spark_command(submitted, self.conn_id, deploy_mode="cluster", application=LAUNCHER_FILE)
            _run(command)
        with explain_api_errors(f"read the pod {name}"):
            created = self.pods.core.read_namespaced_pod(name, self.namespace, _request_timeout=TIMEOUT_S)
        return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": created.metadata.uid}

    def _remove_owner(self, key: str) -> None:
        """Do nothing, because the pod is its own owner."""

    def _describe_missing_driver(self, job_id: str) -> tuple[str, bool]:
        return "its driver pod was deleted", True


def _run(command: list[str]) -> None:
    """Run `spark-submit`, which returns when the driver pod exists.

    Raises:
        JobError: with the reason in its output.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_SUBMIT_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        msg = f"spark-submit did not start the driver within {_SUBMIT_LIMIT_S} seconds"
        raise JobError(msg) from None
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        reason = find_reason(lines)[0] or "\n  ".join(lines[-5:]) or f"it ended with status {done.returncode}"
        msg = f"spark-submit did not start the driver: {reason}"
        raise JobError(msg)
