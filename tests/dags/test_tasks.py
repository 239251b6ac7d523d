from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from backstream.lake.catalog_address import CatalogAddress

Ask = Callable[..., Any]

OTHER_YEAR = (
    "should not be valid under {'description': 'outside source.event_time_range, 2013-01-01T05:00Z to "
    "2014-01-01T05:00Z', 'type': 'string', 'pattern': '^(?!(2012|2013|2014)-)[0-9]{4}-'}"
)
PYTHON_OF_THE_DRIVER = f"spark.pyspark.driver.python={sys.executable}"


@pytest.fixture(scope="session")
def seen(ask: Ask) -> Any:
    """What the tasks did, in a process of their own."""
    return ask("tasks")


def test_what_no_retry_heals_fails_for_good_and_everything_else_is_tried_again(seen: Any) -> None:
    assert {name: kind for name, (kind, _) in seen["errors"].items()} == {
        "BackstreamError": "BackstreamError",
        "SpecError": "AirflowFailException",
        "PlanError": "AirflowFailException",
        "RangeError": "AirflowFailException",
        "ContractError": "AirflowFailException",
        "ConflictError": "AirflowFailException",
        "CommitError": "CommitError",
        "QualityError": "AirflowFailException",
        "StepError": "AirflowFailException",
        "CountError": "CountError",
        "LedgerError": "LedgerError",
        "SetupError": "SetupError",
        "CatalogError": "CatalogError",
        "StorageError": "StorageError",
        "HeapError": "HeapError",
        "JobError": "JobError",
        "UserCodeError": "AirflowFailException",
    }
    messages = {message for _, message in seen["errors"].values()}
    assert messages == {"12 of 744 windows are incomplete\n  first: .."}


def test_the_form_may_leave_the_mode_to_the_definition(seen: Any) -> None:
    assert seen["modes"] == [
        "None",
        "None",
        "<Mode.REPLAY: 'replay'>",
        "<Mode.RECOMPUTE: 'recompute'>",
        "mode must be 'as defined', 'recompute' or 'replay', got 'fast'",
    ]


def test_changed_values_of_the_form_become_parameters_of_the_run(seen: Any) -> None:
    assert seen["asked"] == (
        "RunParams(choices=RunChoices(mode=<Mode.REPLAY: 'replay'>, reason='why', is_unsealed_allowed=False, "
        "gate_override='', overrides={'watermark.delay': '45m'}), max_spark_jobs=None, is_dry_run=False, "
        "is_replan=False)"
    )


def test_a_parameter_that_would_be_ignored_is_refused(seen: Any) -> None:
    assert seen["unknown"] == [
        "SpecError",
        (
            "colour is not a parameter of reprocess_flights, got 'red'\n"
            "  there are: since, until, reason, mode, delay, chunk"
        ),
    ]


def test_a_task_refuses_a_form_in_the_words_of_the_server(seen: Any) -> None:
    # The server's are in tests/e2e/test_cluster.py.
    assert [message.splitlines()[0] for _, message in seen["refused"]] == [
        "Invalid input for param since: '2013-02-01' is not a 'date-time'",
        "Invalid input for param until: 'soon' is not a 'date-time'",
        "Invalid input for param delay: 'an hour' does not match '^(\\\\d+(ms|s|m|h|d))+$'",
        "Invalid input for param max_spark_jobs: 0 is less than the minimum of 1",
        "Invalid input for param mode: 'fast' is not one of ['as defined', 'recompute', 'replay']",
        "Invalid input for param reason: ' ' does not match '\\\\S'",
        "Invalid input for param reason: None is not of type 'string'",
        "Invalid input for param since: None is not of type 'string'",
        f"Invalid input for param since: '0001-01-01T00:00:00Z' {OTHER_YEAR}",
        f"Invalid input for param until: '9999-12-31T00:00:00Z' {OTHER_YEAR}",
        "Invalid input for param chunk: '5h' does not match '^[1-9]\\\\d*d$'",
        f"Invalid input for param since: '2999-01-01T00:00:00Z' {OTHER_YEAR}",
    ]


def test_a_form_gives_the_reason_why_no_run_of_its_definition_can_be_a_replay(seen: Any) -> None:
    reason = "source.arrival_time is missing, so the arrival order is unknown"
    mode = f"{{'description': '{reason}', 'const': 'replay'}}"
    text = f"{{'description': 'for a replay only, but {reason}', 'type': 'string'}}"
    assert [message.splitlines()[0] for _, message in seen["without arrival times"]] == [
        f"Invalid input for param mode: 'replay' should not be valid under {mode}",
        f"Invalid input for param delay: '45m' should not be valid under {text}",
        f"Invalid input for param allowed_lateness: '1h' should not be valid under {text}",
    ]


def test_only_an_approval_by_a_user_counts(seen: Any) -> None:
    in_vain = "rejected, no approver answered in time"
    assert seen["decisions"] == ["approved by ada", "rejected by ada", in_vain, in_vain, in_vain]


def test_an_alert_that_cannot_be_sent_fails_no_run_and_logs_no_token(seen: Any) -> None:
    assert seen["alerts"] == [
        "without a connection",
        "connection 'backstream_alerts' not found; the alert is only logged",
        "run failed",
        "could not post to the connection 'backstream_alerts': URLError",
        "run failed",
        "could not post to the connection 'backstream_alerts': ValueError",
    ]


def test_the_catalog_is_found_by_its_connection(seen: Any) -> None:
    assert seen["catalogs"] == [
        "postgresql+psycopg2://lake:p%40%2Fw@db:5432/flights",
        "postgresql+psycopg2://lake:p%40%2Fw@/flights?host=/run/postgres",
        (
            "connection 'backstream_catalog' must be of type aws, hive_metastore, http, iceberg, postgres, sqlite,"
            " got 'mysql'"
        ),
        "sqlite:////lake/catalog.db?timeout=60",
        "https://rest/api?scope=a%20b&credential=me%3As%2F1",
        "http://rest:8181?token=t%2F2",
        "thrift://meta:9083?hive.hive2-compatible=True",
        "glue://?glue.region=eu-west-1&glue.access-key-id=AK&glue.secret-access-key=s%2F3",
        "the host of connection 'backstream_catalog' is missing",
    ]


def test_properties_of_a_catalog_are_those_of_pyiceberg(seen: Any) -> None:
    rest = CatalogAddress.from_uri(seen["catalogs"][4])
    assert (rest.kind, dict(rest.properties)) == (
        "rest",
        {"uri": "https://rest/api", "scope": "a b", "credential": "me:s/1"},
    )
    assert rest.display_text == "https://rest/api"
    hive, glue = (CatalogAddress.from_uri(seen["catalogs"][number]) for number in (6, 7))
    assert dict(hive.properties) == {"uri": "thrift://meta:9083", "hive.hive2-compatible": "True"}
    assert glue.properties["glue.secret-access-key"] == "s/3"


def test_a_connection_that_is_set_must_exist(seen: Any) -> None:
    assert seen["named"] == [
        "http://theirs",
        (
            "no Airflow connection 'nobody' (BACKSTREAM_CATALOG_CONNECTION)\n\n"
            "hint: airflow connections add nobody, or unset BACKSTREAM_CATALOG_CONNECTION"
        ),
    ]


def test_the_warehouse_is_found_by_its_connection(seen: Any) -> None:
    keys = "AK%2FID:se%2Fcr%2Bet"
    assert seen["warehouses"] == [
        f"s3://{keys}@lake/prod?region=eu-west-1&endpoint=http%3A%2F%2Fminio%3A9000",
        f"s3://{keys}@lake/prod?session_token=t%2F1",
        "s3://lake",
        "connection 'backstream_warehouse' must be of type aws or generic, got 'ftp'",
        "the host of connection 'backstream_warehouse' must be s3://bucket/prefix, got 'lake'",
    ]


def test_a_secret_is_masked_as_an_address_has_it_too(seen: Any) -> None:
    assert seen["masked"] == ["it is ***"] * 7


def test_another_cluster_is_another_connection_and_nothing_else(seen: Any) -> None:
    words = seen["yarn"]
    settings = [value for name, value in pairwise(words) if name == "--conf"]
    assert PYTHON_OF_THE_DRIVER in settings
    others = set(settings) - {PYTHON_OF_THE_DRIVER}
    assert {each.partition(".PY")[0].partition(".SP")[0] for each in others} == {"spark.yarn.appMasterEnv"}
    options = [word for word in words if word not in {"--conf", *settings}]
    assert options == [
        *("--master", "yarn", "--name", "flights 0000"),
        *("--queue", "backfill", "--deploy-mode", "client"),
    ]


def test_spark_on_kubernetes_fails_with_the_name_of_a_package_not_installed(seen: Any) -> None:
    assert seen["kubernetes"] == [
        "AirflowFailException",
        (
            "Spark on Kubernetes needs a package that is not installed (connection 'backstream_spark')\n\n"
            "hint: pip install 'backstream[kubernetes]'"
        ),
    ]


def test_a_driver_that_the_cluster_would_start_is_refused(seen: Any) -> None:
    assert seen["driver elsewhere"] == [
        "AirflowFailException",
        (
            "connection 'backstream_spark' must have the deploy-mode client for yarn, got 'cluster'\n\n"
            'hint: its extra should be {"deploy-mode": "client"}'
        ),
    ]


def test_a_limit_for_the_start_of_pods_must_be_a_number(seen: Any) -> None:
    assert seen["limit"] == [
        "AirflowFailException",
        "start-timeout-s must be a positive number, got 'soon' (extra of connection 'backstream_spark')",
    ]


def test_without_its_connection_a_chunk_is_not_sent_to_whatever_yarn_there_may_be(seen: Any) -> None:
    kind, message = seen["without connection"]
    assert kind == "AirflowFailException"
    assert message == (
        "no Airflow connection 'backstream_spark'; it defines the Spark that runs the chunks\n\n"
        "hint: airflow connections add backstream_spark --conn-type spark --conn-host 'local[*]'"
    )


@pytest.mark.parametrize(("status", "kind"), [("1", "JobError"), ("3", "AirflowFailException")])
def test_the_exit_status_of_a_job_decides_whether_airflow_retries_it(seen: Any, status: str, kind: str) -> None:
    raised, message = seen["ended"][status]
    assert raised == kind
    first, *_, last = message.splitlines()
    assert (first, last) == ("job flights 0000 failed", f"a job of status {status}")


def test_the_error_of_a_job_out_of_memory_has_a_hint_to_increase_it(seen: Any) -> None:
    kind, message = seen["ended"]["52"]
    assert kind == "JobError"
    assert message.partition("\n\n")[2] == (
        "hint: Spark's Java ran out of memory; increase spark.driver.memory in spark-defaults.conf"
    )


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ("137", "signal 9 (SIGKILL), often because the machine or the container had no memory left"),
        ("143", "signal 15 (SIGTERM), the run was canceled, or the worker was stopped"),
    ],
)
def test_the_first_and_last_line_of_a_job_error_name_its_signal(seen: Any, status: str, cause: str) -> None:
    kind, message = seen["ended"][status]
    first, *_, last = message.splitlines()
    assert kind == "JobError"
    assert first == f"job flights 0000 failed: it was ended by {cause}"
    assert last == f"it was ended by {cause}"


def test_the_error_of_a_job_is_in_the_first_and_last_line(seen: Any) -> None:
    kind, message = seen["full disk"]["raised"]
    first, command, last = message.splitlines()
    assert (kind, first) == ("JobError", "job flights 0000 failed: StorageError: the disk is full")
    assert command.startswith("spark-submit ended with status 4: ")
    assert last == "StorageError: the disk is full"


def test_the_log_of_a_job_names_the_file_with_the_traces_of_java_and_has_none(seen: Any) -> None:
    assert seen["full disk"]["log"] == [
        "java.io.IOException: No space left on device",
        "StorageError: the disk is full",
        "a job of status 4",
        "201 lines of Java traces are in FILE",
    ]
    head, first, *_ = seen["full disk"]["trace"]
    assert (head, first) == ("java.io.IOException: No space left on device", "\tat org.A.b(A.scala:1)")


def test_a_task_marks_the_start_of_spark_while_its_job_starts_and_not_after_it_failed(seen: Any) -> None:
    assert seen["full disk"]["phases"] == [["start_spark-0000"], []]


def test_airflow_still_has_the_private_parts_that_the_operators_use(seen: Any) -> None:
    """Guard `spark_command.py` when Airflow's provider for Spark is upgraded."""
    assert seen["private"] == {"command": "(self, application: 'str') -> 'list[str]'", "variables": True}


def test_a_listener_records_the_end_of_a_run_of_any_dag(seen: Any) -> None:
    other, own, (one_ms, group_ms), again, cleared, group_cleared, *succeeded = seen["ends"]
    assert [[end is None for end in ends] for ends in succeeded] == [[True, True], [False, True], [False, False]]
    assert (other, own, again) == ([None, None], [one_ms, None], [one_ms, group_ms])
    assert (cleared, group_cleared) == ([None, group_ms], [None, None])
    assert one_ms > 0
    assert group_ms > 0


def test_a_job_that_leaves_no_manifest_has_not_succeeded(seen: Any) -> None:
    assert seen["ended"]["0"] == ["LedgerError", "no plan at /nowhere/plan.json"]


def test_the_java_of_a_job_has_the_option_for_huge_pages(seen: dict[str, Any]) -> None:
    assert seen["options"] == "-XX:+UseTransparentHugePages"


def test_a_spark_of_this_machine_gets_its_settings_as_a_file_and_a_cluster_as_a_folder(seen: Any) -> None:
    assert seen["settings"] == [["spark-defaults.conf", ""], ["", "settings"]]


def test_spark_and_the_job_are_called_by_absolute_paths(seen: Any) -> None:
    spark_submit, *options, application = seen["submitted"]["command"][:-4]
    python = ["--conf", PYTHON_OF_THE_DRIVER]
    mode = ["--deploy-mode", "client"]
    assert options == ["--master", "local[2]", *python, "--name", "flights 0000", *mode]
    assert Path(spark_submit).parts[-3:] == ("pyspark", "bin", "spark-submit")
    assert Path(application).parts[-3:] == ("backstream", "jobs", "replay.py")
    assert all(Path(path).is_absolute() and Path(path).is_file() for path in (spark_submit, application))
    assert seen["submitted"]["command"][-4:] == ["--plan", "/nowhere/plan.json", "--chunk", "0000"]


def test_spark_submit_gets_spark_home_and_the_python_of_the_task(seen: Any) -> None:
    spark_home = Path(seen["submitted"]["command"][0]).parents[1]
    assert seen["submitted"]["environment"] == {
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def test_spark_is_found_without_being_imported(seen: Any) -> None:
    assert seen["heavy"] == []
