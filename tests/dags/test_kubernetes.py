"""Drivers on Kubernetes, whose API is played: what a task learns of each state, and what it creates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.dags.conftest import Ask

SCHEMA = json.loads((Path(__file__).parent / "spark_application.json").read_text(encoding="utf-8"))
RIGHTS = 'pods "x" is forbidden: User "system:serviceaccount:spark:default" cannot get resource "pods"'
QUOTA = 'pods "x-exec-1" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
NODES = "0/3 nodes are available: 3 Insufficient cpu."


@pytest.fixture(scope="module")
def seen(ask: Ask) -> dict[str, Any]:
    answers: dict[str, Any] = ask("kubernetes")
    return answers


@pytest.mark.parametrize(
    ("case", "phase", "cause", "is_certain"),
    [
        ("succeeded", "succeeded", "", False),
        ("succeeded beside another container", "succeeded", "", False),
        ("works", "running", "", False),
        (
            "out of memory",
            "failed",
            "the container of the driver had no memory left (OOMKilled); increase spark.driver.memoryOverhead",
            False,
        ),
        (
            "killed",
            "failed",
            "it was ended by signal 9 (SIGKILL), often because the machine or the container had no memory left",
            False,
        ),
        ("evicted", "failed", "its pod failed: Evicted The node was low on memory.", False),
        ("deleted", "failed", "its driver pod was deleted", True),
        ("gone", "failed", "its driver pod was deleted", True),
        ("no rights", "failed", f"Kubernetes refused its request: {RIGHTS}", True),
        ("quota", "failed", f"Kubernetes refused its executors: {QUOTA}", True),
        ("quota before another error", "failed", f"Kubernetes refused its request: {QUOTA}", False),
        ("an error", "failed", "ValueError: no such month", False),
        (
            "image",
            "failed",
            "the image 'spark:4' of pod backstream-1-driver cannot be pulled (ImagePullBackOff)",
            True,
        ),
        (
            "configuration",
            "failed",
            "the container of pod backstream-1-driver cannot start: CreateContainerConfigError no secret",
            True,
        ),
        ("no node", "failed", f"no node takes pod backstream-1-driver: {NODES}", True),
        ("no node for executors", "failed", f"no node takes pod events-exec-1: {NODES}", True),
    ],
)
def test_the_state_of_a_job_is_that_of_its_pods(
    case: str, phase: str, cause: str, is_certain: bool, seen: dict[str, Any]
) -> None:
    assert seen["states"][case] == [phase, cause, is_certain]


def test_an_api_that_cannot_be_reached_is_an_error(seen: dict[str, Any]) -> None:
    what = "cannot list the pods in the namespace spark: the API of Kubernetes does not answer"
    assert seen["unreachable"] == ["JobError", f"{what} ([Errno 111] Connection refused)"]


def test_a_manifest_has_the_fields_of_the_operator(seen: dict[str, Any]) -> None:
    jsonschema.validate(seen["manifest"], SCHEMA)


def test_a_field_that_the_operator_does_not_know_is_found(seen: dict[str, Any]) -> None:
    manifest = seen["manifest"]
    with pytest.raises(jsonschema.ValidationError, match="'drivr' was unexpected"):
        jsonschema.validate(manifest | {"spec": {**manifest["spec"], "drivr": {}}}, SCHEMA)


def test_a_manifest_has_no_field_that_needs_the_webhook_and_no_key(seen: dict[str, Any]) -> None:
    spec, key = seen["manifest"]["spec"], seen["key"]
    assert "SECRET" not in json.dumps(spec)
    reference = {"secretKeyRef": {"name": key, "key": "BACKSTREAM_WAREHOUSE"}}
    launcher = {"secretName": key, "items": [{"key": "launch.py", "path": "launch.py"}]}
    assert spec["driver"] == {
        "template": {
            "spec": {
                "tolerations": [{"key": "batch"}],
                "containers": [
                    {
                        "name": "spark-kubernetes-driver",
                        "env": [{"name": "BACKSTREAM_WAREHOUSE", "valueFrom": reference}],
                        "volumeMounts": [{"name": "backstream", "mountPath": "/opt/backstream", "readOnly": True}],
                    }
                ],
                "volumes": [{"name": "backstream", "secret": launcher}],
            }
        }
    }
    assert spec["executor"] == {}
    assert spec["sparkConf"] == {
        "spark.kubernetes.driver.label.backstream-job": key,
        "spark.kubernetes.executor.label.backstream-job": key,
    }
    assert spec["arguments"] == ["backstream.jobs.replay", "--plan", "p"]


def test_an_attempt_removes_the_one_before_it(seen: dict[str, Any]) -> None:
    applications = "/apis/sparkoperator.k8s.io/v1beta2/namespaces/spark/sparkapplications"
    assert seen["requests"] == [
        "POST /api/v1/namespaces/spark/pods",
        f"DELETE {applications}/KEY",
        "DELETE /api/v1/namespaces/spark/pods/backstream-1-driver",
        "DELETE /api/v1/namespaces/spark/secrets/KEY",
        "POST /api/v1/namespaces/spark/secrets",
        f"POST {applications}",
    ]


def test_a_log_is_read_once(seen: dict[str, Any]) -> None:
    assert seen["logs"] == [["first", "second"], []]


def test_a_driver_in_a_pod_needs_a_home_in_a_store(seen: dict[str, Any]) -> None:
    assert seen["on a disk"] == [
        "SpecError",
        (
            "a driver on Kubernetes needs a home in an object store, got /home (BACKSTREAM_HOME)\n\n"
            "hint: set BACKSTREAM_HOME to an address, e.g., s3://bucket/backstream, or set the deploy-mode of the"
            " connection to client"
        ),
    ]


def test_doctor_knows_whether_tasks_wait_for_drivers_elsewhere(seen: dict[str, Any]) -> None:
    fine = "backstream_spark: spark, k8s://https://x"
    problem = (
        "connection 'backstream_spark' must have the deploy-mode client, cluster or operator for k8s://https://x"
    )
    assert seen["checked"] == {
        "client": ["ok", fine, False],
        "cluster": ["ok", fine, True],
        "operator": ["ok", fine, True],
        "swarm": ["fail", f"{problem}, got 'swarm'", False],
    }
