"""Define the task group that puts a run between the tasks of a team's own DAG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import TaskGroup

from backstream.definition.folder import find_definition
from backstream.definition.loader import load_definition
from backstream.orchestration.dag_options import CONNECTION_ID, POOL, DagOptions
from backstream.orchestration.params import GROUP_PARAMS, require_known_params
from backstream.orchestration.priority import WEIGHT_RULE
from backstream.orchestration.run_tasks import add_run_tasks


class BackfillTaskGroup(TaskGroup):
    """The tasks of one run, from `plan` to `report`, for a range of the team's choice.

    Example:
        with DAG("sales", schedule="@weekly"):
            extract() >> BackfillTaskGroup("orders", "orders.toml", since="{{ ds }}T00:00:00Z", ...) >> send_mail()
    """

    def __init__(
        self,
        group_id: str,
        definition: Path | str,
        *,
        since: str | None = None,
        until: str | None = None,
        pool: str = POOL,
        spark_connection: str = CONNECTION_ID,
        run_params: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        """Add the tasks to the current DAG.

        Args:
            group_id: id of the group, the prefix of its task ids.
            definition: TOML file, or the name of a definition in the folders of the settings.
            since: start of the range, ISO 8601 with an offset, may be a template; by default the data interval's.
            until: end of the range, excluded, as `since`.
            pool: pool of the tasks that run Spark jobs.
            spark_connection: id of the Airflow connection to Spark.
            run_params: parameters of the run as in the form of `reprocess_<name>`, such as `mode` and `reason`.
            arguments: further arguments of Airflow's task group, such as `default_args` and `tooltip`.

        Raises:
            SpecError: when the definition does not exist, or it or a parameter is invalid.
        """
        path = find_definition(definition) if isinstance(definition, str) else definition
        require_known_params(run_params or {}, GROUP_PARAMS, f"the task group {group_id}")
        request = GROUP_PARAMS | dict(run_params or {}) | {"since": since, "until": until}
        super().__init__(group_id, **arguments)
        self.default_args.setdefault("weight_rule", self.dag.default_args.get("weight_rule", WEIGHT_RULE))
        with self:
            add_run_tasks(load_definition(path), path.resolve(), DagOptions(pool, spark_connection), request)
