"""Write the schema of a `SparkApplication` for tests without a cluster, from the definitions of the operator.

    python -m tests.kubernetes.schema

It has no descriptions, and not the parts of pods, which are large and which manifests of this package don't have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from tests.kubernetes.build import build

FILE = Path(__file__).parents[1] / "dags" / "spark_application.json"
_LEFT_OUT = ("affinity", "initContainers", "sidecars", "volumes")


def main() -> None:
    """Write the file."""
    (file,) = build().definitions.glob("*_sparkapplications.yaml")
    (version,) = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["versions"]
    schema = _strict(version["schema"]["openAPIV3Schema"])
    FILE.write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")


def _strict(schema: Any) -> Any:
    """Return a schema without descriptions that refuses unknown fields, as a strict API server does."""
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: value for name, value in schema.items() if not (name == "description" and isinstance(value, str))
    }
    if "properties" in kept:
        fields = {name: _strict(value) for name, value in kept["properties"].items() if name not in _LEFT_OUT}
        kept |= {"properties": fields, "additionalProperties": False}
    elif isinstance(kept.get("additionalProperties"), dict):
        kept["additionalProperties"] = _strict(kept["additionalProperties"])
    if "items" in kept:
        kept["items"] = _strict(kept["items"])
    return kept


if __name__ == "__main__":
    main()
