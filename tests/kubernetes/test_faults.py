"""Replay tasks on a real control plane, with faults: the error is true, a retry resumes, and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.kubernetes.cluster import API_SERVER, OPERATOR, Cluster
from tests.kubernetes.jobs import Task, finished_chunks, plan_days, require_published

WAYS = ("client", "cluster", "operator")
PODS = ("cluster", "operator")
SHORT_S = {"client": 4.0, "cluster": 4.0, "operator": 20.0}
"""The operator needs some seconds for its `spark-submit`."""


def quota(name: str, pods: int) -> dict[str, object]:
    """Return a quota for the pods of a namespace."""
    metadata = {"name": "few-pods", "namespace": name}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": {"pods": str(pods)}},
    }


@pytest.mark.parametrize("mode", WAYS)
def test_a_run_survives_its_executor_and_publishes_each_row_once(
    mode: str, cluster: Cluster, private: Path
) -> None:
    task = Task(cluster, plan_days(private, f"killed_executor_{mode}"), mode)
    first = task.until("an executor runs", lambda: task.pod("executor"))
    task.kill_pod(first)
    result = task.result()

    assert (result.kind, result.message) == ("", ""), result.log
    assert "chunk 0003 (2024-03-04T00:00Z to 2024-03-05T00:00Z)" in result.log
    assert "4 of 4 chunks are done" in result.log
    require_published(task.plan)


@pytest.mark.parametrize("mode", PODS)
def test_a_retry_after_the_driver_was_killed_resumes_finished_chunks(
    mode: str, cluster: Cluster, private: Path
) -> None:
    plan = plan_days(private, f"killed_driver_{mode}")
    task = Task(cluster, plan, mode)
    task.until("a chunk is finished", lambda: finished_chunks(plan))
    task.kill_pod(task.pod("driver"))
    killed, done = task.result(), finished_chunks(plan)

    assert killed.kind == "JobError"
    assert killed.sentence == "job events failed: its driver pod was deleted"
    assert f"Submitted application: backstream killed_driver_{mode}" in killed.log
    assert 0 < len(done) < 4

    retried = Task(cluster, plan, mode).result()
    assert (retried.kind, retried.message) == ("", ""), retried.log
    assert {chunk: finished_chunks(plan)[chunk] for chunk in done} == done
    require_published(plan)


@pytest.mark.parametrize("mode", WAYS)
def test_a_cancelled_task_leaves_no_pod(mode: str, cluster: Cluster, private: Path) -> None:
    plan = plan_days(private, f"cancelled_{mode}")
    task = Task(cluster, plan, mode)
    task.until("an executor runs", lambda: task.pod("executor"))
    task.cancel()

    assert task.result().kind == "JobError"
    assert len(finished_chunks(plan)) < 4


@pytest.mark.parametrize("mode", WAYS)
def test_an_image_that_cannot_be_pulled_ends_the_job(mode: str, cluster: Cluster, private: Path) -> None:
    image = {"spark_kubernetes_container_image": "missing:1"}
    result = Task(
        cluster, plan_days(private, f"image_{mode}"), mode, limit_s=SHORT_S[mode], settings=image
    ).result()

    assert result.kind == "JobError"
    assert result.sentence.startswith("job events failed: the image 'missing:1' of pod backstream-"), (
        result.message
    )
    assert "cannot be pulled (ImagePullBackOff) (waited " in result.sentence


@pytest.mark.parametrize(
    ("mode", "role"), [("operator", "driver"), ("cluster", "executor"), ("client", "executor")]
)
def test_a_pod_that_no_node_takes_ends_the_job(mode: str, role: str, cluster: Cluster, private: Path) -> None:
    memory = {f"spark_{role}_memory": "100g"}
    plan = plan_days(private, f"large_{role}_{mode}")
    result = Task(cluster, plan, mode, limit_s=SHORT_S[mode], settings=memory).result()

    assert result.kind == "JobError"
    assert result.sentence.startswith("job events failed: no node takes pod backstream-"), result.message
    assert "0/1 nodes are available: 1 Insufficient memory" in result.sentence


@pytest.mark.parametrize("mode", PODS)
def test_a_quota_without_room_for_the_driver_is_named(mode: str, cluster: Cluster, private: Path) -> None:
    cluster.apply(quota("full", 0))
    result = Task(cluster, plan_days(private, f"full_{mode}"), mode, namespace="full").result()

    assert result.kind == "JobError"
    assert "exceeded quota: few-pods, requested: pods=1, used: pods=0, limited: pods=0" in result.sentence


def test_a_quota_without_room_for_executors_is_named(cluster: Cluster, private: Path) -> None:
    cluster.apply(quota("narrow", 1))
    result = Task(cluster, plan_days(private, "narrow"), "cluster", namespace="narrow").result()

    assert result.kind == "JobError"
    assert "Kubernetes refused its executors" in result.sentence, result.message
    assert "exceeded quota: few-pods" in result.sentence


@pytest.mark.parametrize("mode", PODS)
def test_a_service_account_without_rights_is_named(mode: str, cluster: Cluster, private: Path) -> None:
    account = {"spark_kubernetes_authenticate_driver_serviceAccountName": "default"}
    result = Task(cluster, plan_days(private, f"rights_{mode}"), mode, settings=account).result()

    assert result.kind == "JobError"
    assert 'User "system:serviceaccount:spark:default" cannot get resource "pods"' in result.sentence, (
        result.message
    )


@pytest.mark.parametrize("service", [OPERATOR, API_SERVER])
def test_a_run_survives_a_restart(service: str, cluster: Cluster, private: Path) -> None:
    task = Task(cluster, plan_days(private, f"restarted_{service.replace('-', '_')}"), "operator")
    task.until("the driver runs", lambda: task.pod("driver"))
    cluster.restart(service, pause_s=3)
    cluster.wait("the API server is back", lambda: cluster.kubectl("get", "--raw", "/readyz") == "ok")
    result = task.result()

    assert (result.kind, result.message) == ("", ""), result.log
    require_published(task.plan)


def test_an_operator_that_does_nothing_ends_the_job(cluster: Cluster, private: Path) -> None:
    cluster.services[OPERATOR].process.kill()
    try:
        result = Task(cluster, plan_days(private, "no_operator"), "operator", limit_s=4).result()
    finally:
        cluster.restart(OPERATOR)

    assert result.kind == "JobError"
    assert result.sentence.startswith(
        "job events failed: the Spark operator has not started the driver (state NEW) (waited "
    )


@pytest.mark.parametrize("mode", PODS)
def test_a_template_with_a_field_that_would_be_ignored_is_refused(
    mode: str, cluster: Cluster, private: Path
) -> None:
    template = private / "template.yaml"
    template.write_text(json.dumps({"spec": {"tolerationz": []}}))
    setting = {"spark_kubernetes_driver_podTemplateFile": str(template)}
    result = Task(cluster, plan_days(private, f"field_{mode}"), mode, settings=setting).result()

    assert result.kind == "AirflowFailException"
    assert result.sentence.startswith("the pod template is not valid: "), result.message
    assert result.sentence.endswith(
        'unknown field "spec.tolerationz" (spark.kubernetes.driver.podTemplateFile)'
    ), result.message
