"""Registers backstream's pages with Airflow: all datasets, tabs on each DAG, and the report of each DAG run."""

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
            "href": "backstream/overview",
            "destination": "nav",
            "category": "browse",
            "url_route": "backfills",
        },
        {
            "name": "Windows",
            "href": "backstream/dataset?dag_id={DAG_ID}",
            "destination": "dag",
            "url_route": "backstream_windows",
        },
        {
            "name": "Watermark",
            "href": "backstream/watermark?dag_id={DAG_ID}",
            "destination": "dag",
            "url_route": "backstream_watermark",
        },
        {
            "name": "Report",
            "href": "backstream/report?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "backstream_report",
        },
    ]
