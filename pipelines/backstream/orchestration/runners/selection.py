"""Choose the place where a job runs, by the Airflow connection to Spark."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from backstream.errors import SpecError
from backstream.orchestration.runners.job_runner import JobRunner
from backstream.orchestration.runners.kubernetes_pods import START_LIMIT_S, KubernetesPods
from backstream.orchestration.runners.spark_submit import SparkSubmit
from backstream.orchestration.runners.standalone import StandaloneCluster

_CLIENT, _CLUSTER, _OPERATOR = "client", "cluster", "operator"
_EMR = "emr-serverless"
_MODES = {"spark": (_CLIENT, _CLUSTER), "k8s": (_CLIENT, _CLUSTER, _OPERATOR), _EMR: (_CLUSTER,)}
"""The values of `deploy-mode` by the scheme of the master; other masters have only the first one."""


def find_runner(connection: Any) -> JobRunner:
    """Return the place of the connection for the driver of a replay.

    Raises:
        SpecError: when the place doesn't exist, or needs a package that is not installed.
    """
    master, extra = spark_master(connection), connection.extra_dejson
    scheme = master.partition("://")[0]
    modes = _MODES.get(scheme, (_CLIENT,))
    mode = extra.get("deploy-mode") or modes[0]
    if mode not in modes:
        listed = " or ".join(filter(None, (", ".join(modes[:-1]), modes[-1])))
        msg = (
            f"connection {connection.conn_id!r} must have the deploy-mode {listed} for {master}, got {mode!r}\n\n"
            f'hint: its extra should be {{"deploy-mode": "{modes[0]}"}}'
        )
        raise SpecError(msg)
    if mode == _CLIENT:
        return find_client(connection)
    if scheme == "spark":
        return StandaloneCluster.from_connection(connection)
    if scheme == _EMR:
        _require_package(connection, "EMR Serverless", "boto3", "boto3")
        from backstream.orchestration.runners.emr_serverless import EmrServerless

        return EmrServerless.from_connection(connection)
    _require_kubernetes(connection)
    settings = {
        "conn_id": connection.conn_id,
        "master": master,
        "namespace": _namespace(connection),
        "start_limit_s": _start_limit_s(connection),
    }
    return make_runner("ClusterSubmit" if mode == _CLUSTER else "SparkOperator", settings)


def find_client(connection: Any) -> SparkSubmit:
    """Return the place beside the task, with the executors of the connection.

    Raises:
        SpecError: when it needs a package that is not installed.
    """
    master = spark_master(connection)
    if master.startswith(f"{_EMR}://"):
        return SparkSubmit(connection.conn_id, master="local[*]")
    if not master.startswith("k8s://"):
        return SparkSubmit(connection.conn_id)
    _require_kubernetes(connection)
    pods = KubernetesPods(master, _namespace(connection), _start_limit_s(connection))
    return SparkSubmit(connection.conn_id, pods=pods)


def make_runner(kind: str, settings: dict[str, Any]) -> JobRunner:
    """Return a runner of drivers in other places, by the name of its class and its arguments."""
    if kind == StandaloneCluster.__name__:
        return StandaloneCluster(**settings)
    if kind == "EmrServerless":
        from backstream.orchestration.runners.emr_serverless import EmrServerless

        return EmrServerless(**settings)
    from backstream.orchestration.runners.kubernetes_driver import ClusterSubmit
    from backstream.orchestration.runners.spark_application import SparkOperator

    runners: dict[str, Callable[..., JobRunner]] = {
        runner.__name__: runner for runner in (ClusterSubmit, SparkOperator)
    }
    return runners[kind](**settings)


def spark_master(connection: Any) -> str:
    """Return the address of Spark's master, which Airflow may store with the scheme as the connection type."""
    host = connection.host or ""
    if connection.conn_type != "spark" or (host and "://" not in host and connection.port):
        host = f"{connection.conn_type}://{host}"
    return f"{host}:{connection.port}" if connection.port else host


def _namespace(connection: Any) -> str:
    from backstream.spark.heap import load_defaults

    setting = load_defaults().get("spark.kubernetes.namespace")
    return str(connection.extra_dejson.get("namespace") or setting or "default")


def _start_limit_s(connection: Any) -> float:
    """Return the time that pods may wait for a node.

    Raises:
        SpecError: when it is not a positive number.
    """
    text = connection.extra_dejson.get("start-timeout-s", START_LIMIT_S)
    try:
        limit_s = float(text)
    except (TypeError, ValueError):
        limit_s = 0.0
    if limit_s <= 0:
        msg = (
            f"start-timeout-s must be a positive number, got {text!r} (extra of connection {connection.conn_id!r})"
        )
        raise SpecError(msg)
    return limit_s


def _require_package(connection: Any, place: str, module: str, package: str) -> None:
    """Check that a package is installed that a place of jobs needs.

    Raises:
        SpecError: when it is missing.
    """
    if not _is_installed(module):
        msg = (
            f"{place} needs a package that is not installed"
            f" (connection {connection.conn_id!r})\n\nhint: pip install {package}"
        )
        raise SpecError(msg)


def _require_kubernetes(connection: Any) -> None:
    module, package = "airflow.providers.cncf.kubernetes", "'backstream[kubernetes]'"
    _require_package(connection, "Spark on Kubernetes", module, package)


def _is_installed(module: str) -> bool:
    """Return whether a module is installed, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
