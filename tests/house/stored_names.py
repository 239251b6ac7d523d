"""The names that files, tables and commands carry, read from the code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer.main

from backstream.cli import app
from backstream.definition.loader import json_schema
from backstream.lake import catalog, snapshots
from backstream.lake.ledger import CHECKS_TABLE, RUNS_TABLE
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals, ReconciledDay
from backstream.runs.handover_bundle import HandoverBundle
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Chunk, InputFile, Plan, PlannedTable
from backstream.runs.plan_summary import PlanSummary
from backstream.runs.requests import Dismissal, RunRequest
from backstream.runs.results import ApprovalDecision, ApprovalRequest, Audit, Check, Publication
from backstream.runs.table_schemas import (
    METRICS_TABLE,
    QUARANTINE_TABLE,
    Table,
    dropped_table,
    firings_table,
    panes_table,
    process_rows_table,
    restatements_table,
    side_outputs_table,
    skipped_windows_table,
    windows_table,
)

EXPECTATIONS = Path(__file__).parents[2] / "expectations"
RECORDED = Path(__file__).with_name("stored_names.json")
_JSON: dict[str, type[Any]] = {
    "plan": Plan,
    "plan.chunks": Chunk,
    "plan.inputs": InputFile,
    "plan.tables": PlannedTable,
    "request": RunRequest,
    "dismissal": Dismissal,
    "reconciled_day": ReconciledDay,
    "run": PlanSummary,
    "manifest": Manifest,
    "manifest.files": StagedFile,
    "audit": Audit,
    "audit.checks": Check,
    "approval": ApprovalDecision,
    "approval_request": ApprovalRequest,
    "publication": Publication,
    "bundle": HandoverBundle,
    "state": DatasetState,
    "state.days": DayIssue,
    "totals": DayTotals,
}


def stored_names() -> dict[str, list[str]]:
    """Return the stored names by the kind of place that they are in, sorted."""
    kinds = {
        "definition": _definition_keys(),
        "tables": _columns(),
        "json": (f"{name}.{field}" for name, kind in _JSON.items() for field in _names(kind)),
        "files": _files(),
        "properties": _properties(),
        "commands": _commands(),
        "checks": _checks(),
    }
    return {kind: sorted(set(names)) for kind, names in kinds.items()}


def _names(kind: Any) -> Iterator[str]:
    """Yield the fields of a dataclass or of a named tuple."""
    yield from getattr(kind, "_fields", None) or (field.name for field in fields(kind))


def _definition_keys() -> Iterator[str]:
    schema = json.loads(json_schema())

    def walk(node: Any, path: str) -> Iterator[str]:
        if isinstance(node, list):
            for each in node:
                yield from walk(each, path)
        if not isinstance(node, dict):
            return
        if reference := node.get("$ref"):
            yield from walk(schema["$defs"][reference.rpartition("/")[2]], path)
        yield from (f"{path} = {value}" for value in node.get("enum", []))
        for key, value in node.get("properties", {}).items():
            yield f"{path}.{key}".lstrip(".")
            yield from walk(value, f"{path}.{key}".lstrip("."))
        for key in ("anyOf", "oneOf", "items", "prefixItems", "additionalProperties"):
            yield from walk(node.get(key), path)
        for value in node.get("patternProperties", {}).values():
            yield from walk(value, f"{path}.<name>")

    return walk(schema, "")


def _columns() -> Iterator[str]:
    tables: list[Table] = [METRICS_TABLE, QUARANTINE_TABLE, RUNS_TABLE, CHECKS_TABLE]
    tables += [dropped_table(()), restatements_table(()), skipped_windows_table(()), side_outputs_table(())]
    tables += [process_rows_table((), ())]
    tables += [make((), ()) for make in (windows_table, panes_table, firings_table)]
    for table in tables:
        for column in table.columns:
            yield f"{table.suffix or 'windows'}.{column.name}"


def _files() -> Iterator[str]:
    home = Home(Path("/home"))
    run = home.run("dataset", "run")
    for owner in (home, run):
        for name, member in vars(type(owner)).items():
            if isinstance(member, property) and isinstance(path := getattr(owner, name), Path):
                yield str(path.relative_to(home.path))
    yield from (str(path.relative_to(home.path)) for path in (home.dataset_state("x"), home.advice("x")))


def _properties() -> Iterator[str]:
    for module in (catalog, snapshots):
        for value in vars(module).values():
            if isinstance(value, str) and value.startswith("backstream.") and value != module.__name__:
                yield value


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        yield name
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("-"):
                    yield f"{name} {option}"


def _checks() -> Iterator[str]:
    for file in sorted(EXPECTATIONS.glob("*.json")):
        for entry in json.loads(file.read_text(encoding="utf-8"))["expectations"]:
            yield f"{file.stem}: {entry['description']}"
            yield f"frame {entry['meta']['frame']}: {entry['kwargs'].get('column', '')}".rstrip(": ")


def write() -> None:
    """Record the names."""
    RECORDED.write_text(json.dumps(stored_names(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
