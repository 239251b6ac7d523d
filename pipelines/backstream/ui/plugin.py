"""Register with Airflow: pages, a listener to the ends of runs, and the priority of tasks."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from backstream.orchestration import priority, run_ends
from backstream.ui.lazy import LazyApplication


class BackstreamPlugin(AirflowPlugin):
    """Links of the pages; the first request imports the application."""

    name = "backstream"
    fastapi_apps = [{"app": LazyApplication(), "url_prefix": "/backstream", "name": "backstream"}]  # noqa: RUF012 - Airflow's interface
    listeners = [run_ends]  # noqa: RUF012 - Airflow's interface
    priority_weight_strategies = [priority.ScheduledFirst]  # noqa: RUF012 - Airflow's interface
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
            "href": "backstream/run?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "backstream_report",
        },
    ]
