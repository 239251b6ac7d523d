"""Run the driver of a job by the Spark operator: create a `SparkApplication`, follow its pods, and delete it.

The state of a `SparkApplication` alone isn't enough. It stays SUBMITTED if the image cannot be pulled, and RUNNING
if no executor can start, so the pods decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from backstream.orchestration.runners.job_runner import SparkJob
from backstream.orchestration.runners.kubernetes_driver import (
    IMAGE,
    LAUNCHER_FILE,
    TEMPLATE,
    TIMEOUT_S,
    KubernetesDriver,
    load_template,
)
from backstream.orchestration.runners.kubernetes_pods import explain_api_errors, find_reason

_GROUP, _VERSION, _PLURAL = "sparkoperator.k8s.io", "v1beta2", "sparkapplications"
_FAILED = ("FAILED", "SUBMISSION_FAILED")
_NOT_FOUND = 404
_OTHERS = ("spark.master", "spark.submit.deployMode", IMAGE)
"""The settings that the operator or a field of the manifest defines."""
_KEPT_S = 86_400
"""The time after which the operator deletes an application that nobody else has deleted."""


@dataclass(slots=True)
class SparkOperator(KubernetesDriver):
    """A namespace where the Spark operator starts drivers."""

    def _start(
        self, key: str, job: SparkJob, defaults: Mapping[str, str], template: dict[str, Any]
    ) -> dict[str, Any]:
        manifest = _spark_application(key, self.namespace, job, defaults, template)
        with explain_api_errors(f"create the SparkApplication {key} in the namespace {self.namespace}"):
            created = self._applications.create_namespaced_custom_object(
                _GROUP,
                _VERSION,
                self.namespace,
                _PLURAL,
                manifest,
                field_validation="Strict",  # otherwise an unknown field is dropped silently
                _request_timeout=TIMEOUT_S,
            )
        owner = {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": "SparkApplication", "name": key}
        return owner | {"uid": created["metadata"]["uid"]}

    @property
    def _applications(self) -> Any:
        from kubernetes.client import CustomObjectsApi

        return CustomObjectsApi(self.pods.client())

    def _describe_missing_driver(self, job_id: str) -> tuple[str, bool]:
        from kubernetes.client import ApiException

        with explain_api_errors(f"read the SparkApplication {job_id}"):
            try:
                found = self._applications.get_namespaced_custom_object(
                    _GROUP, _VERSION, self.namespace, _PLURAL, job_id, _request_timeout=TIMEOUT_S
                )
            except ApiException as error:
                if error.status != _NOT_FOUND:
                    raise
                return "its SparkApplication was deleted", True
        status = found.get("status") or {}
        state = (status.get("applicationState") or {}).get("state") or "NEW"
        message = (status.get("applicationState") or {}).get("errorMessage") or ""
        if state in _FAILED:
            if (status.get("driverInfo") or {}).get("podName") and not message.startswith("failed to submit"):
                return "its driver pod was deleted", True
            reason = find_reason(message.splitlines())[0] or message.partition("\n")[0] or f"its state is {state}"
            return f"the Spark operator did not start the driver: {reason}", True
        if state in ("NEW", "SUBMITTED"):
            return f"the Spark operator has not started the driver (state {state})", False
        return f"it has no driver pod (state {state})", False

    def _remove_owner(self, key: str) -> None:
        def delete(name: str, namespace: str, **options: Any) -> None:
            self._applications.delete_namespaced_custom_object(
                _GROUP, _VERSION, namespace, _PLURAL, name, **options
            )

        self._delete("SparkApplication", delete, key)


def _spark_application(
    key: str, namespace: str, job: SparkJob, defaults: Mapping[str, str], template: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the manifest of a job, which has no field that needs the webhook of the operator.

    Args:
        key: name of the object.
        namespace: its namespace.
        job: the job; its first argument is the module.
        defaults: settings in `spark-defaults.conf` of the task, which the operator doesn't see.
        template: pod template of the driver.
    """
    templates = {TEMPLATE.format(role=role) for role in ("driver", "executor")}
    settings = {name: value for name, value in defaults.items() if name not in {*_OTHERS, *templates}}
    executor = load_template("executor", defaults)
    return {
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "kind": "SparkApplication",
        "metadata": {"name": key, "namespace": namespace},
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": version("pyspark"),
            "image": defaults[IMAGE],
            "mainApplicationFile": LAUNCHER_FILE,
            "arguments": list(job.arguments),
            "restartPolicy": {"type": "Never"},
            "timeToLiveSeconds": _KEPT_S,
            "sparkConf": {**settings, **job.settings},
            "driver": {"template": dict(template)},
            "executor": {"template": executor} if executor else {},
        },
    }
