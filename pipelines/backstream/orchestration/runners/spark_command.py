"""Build the command of `spark-submit` for a job, with the arguments that the Airflow connection defines."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from backstream.errors import SetupError
from backstream.orchestration.runners.job_runner import SparkJob
from backstream.spark.installation import find_scripts_folder


def spark_command(
    job: SparkJob,
    conn_id: str,
    *,
    deploy_mode: str,
    binary: str = "",
    properties_file: str = "",
    application: str = "",
    master: str = "",
) -> tuple[list[str], dict[str, str]]:
    """Return the words of the command, and the variables of its process.

    The command has the paths of Spark, Python, and the job, so the search path and the working folder of a worker
    don't matter.

    Args:
        job: the job.
        conn_id: Airflow connection to Spark.
        deploy_mode: place of the driver, `client` or `cluster`.
        binary: another program than the installed `spark-submit`.
        properties_file: file with settings, in place of the settings folder.
        master: another master than that of the connection.
        application: file on the machine of the driver, if that is another one; by default the job's file here.
    """
    home = find_spark_home()
    variables = {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    # For Kubernetes and YARN, the hook passes `env_vars` to a driver in the cluster; this driver is local.
    here: dict[str, Any] = {"env_vars": variables, "conf": {"spark.pyspark.driver.python": sys.executable}}
    options: dict[str, Any] = {"conf": {}} if application else here
    hook = SparkSubmitHook(
        conn_id=conn_id,
        name=job.name,
        application_args=list(job.arguments),
        spark_binary=binary or str(home / "bin" / "spark-submit"),
        deploy_mode=deploy_mode,
        properties_file=properties_file or None,
        **options | {"conf": {**options["conf"], **job.settings}},
    )
    file = application or str(find_module_file(job.module))
    command: list[str] = hook._build_spark_submit_command(file)  # noqa: SLF001 - no public method returns it
    if master:
        command[command.index("--master") + 1] = master
    return command, dict(hook._env or {})  # noqa: SLF001 - as above


def find_spark_home() -> Path:
    """Return the folder of the installed PySpark, without importing it.

    Raises:
        SetupError: when PySpark is not installed.
    """
    return find_scripts_folder(find_module_file("pyspark"))


def find_module_file(module: str) -> Path:
    """Return the file of a module, without importing it.

    Raises:
        SetupError: when the module is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        msg = f"no module {module} in this environment ({sys.executable})\n\nhint: pip install 'backstream[spark]'"
        raise SetupError(msg)
    return Path(spec.origin)
