"""Registers backstream's pages with Airflow: a list of backfills, and the report of each DAG run."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from backstream.ui.lazy import LazyApplication


class BackstreamPlugin(AirflowPlugin):
    """Links only: the application behind them is imported with the first request."""

    name = "backstream"
    fastapi_apps = [{"app": LazyApplication(), "url_prefix": "/backstream", "name": "backstream"}]  # noqa: RUF012 - Airflow's interface
    external_views = [  # noqa: RUF012 - Airflow's interface
        {
            "name": "Backfills",
            "href": "backstream/runs",
            "destination": "nav",
            "category": "browse",
            "url_route": "backfills",
        },
        {
            "name": "Report",
            "href": "backstream/report?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "backstream_report",
        },
    ]
