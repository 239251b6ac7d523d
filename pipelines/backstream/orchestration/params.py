"""Read the parameters of a run.

The task `plan` checks everything that the schema of the form cannot express. It rejects parameters that would have
no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from backstream.definition.loader import OVERRIDE_FIELDS
from backstream.errors import SpecError
from backstream.runs.choices import RunChoices
from backstream.runs.plan import Mode

AS_DEFINED = "as defined"
"""Choice that uses the value of the definition."""

GROUP_PARAMS: dict[str, Any] = {
    "since": None,
    "until": None,
    "time_zone": None,
    "mode": AS_DEFINED,
    **dict.fromkeys(OVERRIDE_FIELDS),
    "max_spark_jobs": None,
    "allow_unsealed": False,
    "gate_override": None,
    "replan": False,
    "reason": "",
}
"""Parameters of a run in a task group of a team's DAG, with their default values."""
_AIRFLOW_KEYS = {"openlineage"}
"""Keys that Airflow adds to the configuration of a run."""


@dataclass(frozen=True, slots=True)
class RunParams:
    """Parameters of a run besides its range. `max_spark_jobs` None: no limit."""

    choices: RunChoices
    max_spark_jobs: int | None
    is_dry_run: bool
    is_replan: bool

    @classmethod
    def from_params(cls, params: Mapping[str, Any], known: Collection[str], dag_id: str) -> RunParams:
        """Return the parameters of a run.

        Args:
            params: parameters from the form or the configuration of the run.
            known: names of the parameters of the DAG.
            dag_id: id of the DAG.

        Raises:
            SpecError: when a parameter or the mode is unknown.
        """
        require_known_params(params, known, dag_id)
        overrides = {
            key: str(params[name])
            for name, key in OVERRIDE_FIELDS.items()
            if params.get(name) not in (None, "", AS_DEFINED)
        }
        choices = RunChoices(
            mode=parse_mode(params.get("mode")),
            reason=(params.get("reason") or "").strip(),
            is_unsealed_allowed=bool(params.get("allow_unsealed")),
            gate_override=(params.get("gate_override") or "").strip(),
            overrides=overrides,
        )
        return cls(
            choices,
            max_spark_jobs=params.get("max_spark_jobs"),
            is_dry_run=bool(params.get("dry_run")),
            is_replan=bool(params.get("replan")),
        )


def require_known_params(params: Mapping[str, Any], known: Collection[str], dag_id: str) -> None:
    """Check that the DAG has every parameter in the configuration of a run.

    Raises:
        SpecError: with the first unknown parameter, and the known ones.
    """
    for name, value in params.items():
        if name not in known and name not in _AIRFLOW_KEYS:
            msg = f"{name} is not a parameter of {dag_id}, got {value!r}\n  there are: {', '.join(known)}"
            raise SpecError(msg)


def parse_mode(choice: str | None) -> Mode | None:
    """Return the chosen mode; None for the mode of the definition.

    Raises:
        SpecError: when the mode does not exist.
    """
    if choice in (None, "", AS_DEFINED):
        return None
    try:
        return Mode(str(choice))
    except ValueError:
        *first, last = [repr(name) for name in (AS_DEFINED, *(mode.value for mode in Mode))]
        msg = f"mode must be {', '.join(first)} or {last}, got {choice!r}"
        raise SpecError(msg) from None
