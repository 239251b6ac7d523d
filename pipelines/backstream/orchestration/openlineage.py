"""Write the lineage of a run as facets of OpenLineage. Only the hooks of Airflow's provider import this module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attr
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    documentation_dataset,
    input_statistics_input_dataset,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)

from backstream.definition.column_lineage import Origin
from backstream.eventtime.instants import instant_text
from backstream.runs.results import Audit, Check, CheckOutcome, Severity
from backstream.text import visible_line, visible_text

if TYPE_CHECKING:
    from backstream.workflow.lineage import LineageInput, LineageOutput, RunLineage

_Lineage = OperatorLineage[Any, Any]
_SUCCESS = (CheckOutcome.PASS, CheckOutcome.INFO)
_FACET = "backstream"


@attr.define
class _BackstreamRunFacet(RunFacet):
    """The run of backstream behind a task: its id, the half-open range in UTC, the mode, and the verdict."""

    runId: str  # noqa: N815 - facets have such names
    dataset: str
    since: str
    until: str
    mode: str
    reason: str
    verdict: str | None = None


def audit_lineage(lineage: RunLineage, audit: Audit | None) -> _Lineage:
    """Return the lineage of an audit: the table that the run is for, with the result of each check."""
    (output, *_) = lineage.outputs
    facets: dict[str, InputDatasetFacet] = {}
    if audit:
        checks = [_assertion(check) for check in audit.checks]
        facets["dataQualityAssertions"] = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(checks)
    audited = InputDataset(
        output.address.namespace, output.address.name, facets=_table_facets(lineage, output), inputFacets=facets
    )
    return _Lineage(inputs=[audited], run_facets=_run_facets(lineage, audit))


def publication_lineage(lineage: RunLineage, audit: Audit | None) -> _Lineage:
    """Return the lineage of a publication: inputs, tables, and the origins of each column."""
    return _Lineage(
        inputs=[_input(each) for each in lineage.inputs],
        outputs=[_output(lineage, each) for each in lineage.outputs],
        run_facets=_run_facets(lineage, audit),
    )


def _run_facets(lineage: RunLineage, audit: Audit | None) -> dict[str, RunFacet]:
    plan = lineage.plan
    facet = _BackstreamRunFacet(
        runId=plan.run_id,
        dataset=plan.dataset,
        since=instant_text(plan.since_ms),
        until=instant_text(plan.until_ms),
        mode=plan.mode.value,
        reason=visible_line(plan.reason),
        verdict=audit.verdict.value if audit else None,
    )
    return {_FACET: facet}


def _assertion(check: Check) -> data_quality_assertions_dataset.Assertion:
    return data_quality_assertions_dataset.Assertion(
        assertion=check.expectation,
        success=check.outcome in _SUCCESS,
        column=check.column,
        severity="error" if check.severity is Severity.CRITICAL else "warn",
        name=visible_line(check.name),
        expected=visible_line(check.limit) or None,
        actual=visible_line(check.observed) or None,
    )


def _input(read: LineageInput) -> InputDataset:
    facets: dict[str, DatasetFacet] = {}
    if read.columns:
        facets["schema"] = _schema(dict(read.columns))
    if read.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(read.version)
    statistics: dict[str, InputDatasetFacet] = {}
    if read.files is not None:
        statistics["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            size=read.size_bytes, fileCount=read.files
        )
    return InputDataset(read.address.namespace, read.address.name, facets=facets, inputFacets=statistics)


def _output(lineage: RunLineage, written: LineageOutput) -> OutputDataset:
    state = lifecycle_state_change_dataset.LifecycleStateChange.OVERWRITE
    facets = _table_facets(lineage, written) | {
        "columnLineage": _column_lineage(lineage.inputs, written),
        "lifecycleStateChange": lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(state),
    }
    if written.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(written.version)
    statistics: dict[str, OutputDatasetFacet] = {}
    if lineage.publication:
        statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=lineage.publication.rows, size=lineage.size_bytes, fileCount=lineage.publication.files
        )
    return OutputDataset(written.address.namespace, written.address.name, facets=facets, outputFacets=statistics)


def _table_facets(lineage: RunLineage, table: LineageOutput) -> dict[str, DatasetFacet]:
    identifier = symlinks_dataset.Identifier(lineage.catalog, table.table, "TABLE")
    facets: dict[str, DatasetFacet] = {
        "schema": _schema(dict(table.columns)),
        "storage": storage_dataset.StorageDatasetFacet("iceberg", "parquet"),
        "symlinks": symlinks_dataset.SymlinksDatasetFacet([identifier]),
    }
    if lineage.description:
        facets["documentation"] = documentation_dataset.DocumentationDatasetFacet(
            visible_text(lineage.description)
        )
    return facets


def _schema(columns: dict[str, str]) -> schema_dataset.SchemaDatasetFacet:
    return schema_dataset.SchemaDatasetFacet(
        [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in columns.items()]
    )


def _column_lineage(
    inputs: Sequence[LineageInput], written: LineageOutput
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    fields: dict[str, column_lineage_dataset.Fields] = {}
    for column, name in written.names.items():
        origins = [
            field
            for read in inputs
            if read.lineage
            for field in _input_fields(read, read.lineage.columns.get(column, ()))
        ]
        if origins:
            fields[name] = column_lineage_dataset.Fields(origins)
    rows = [field for read in inputs if read.lineage for field in _input_fields(read, read.lineage.rows)]
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields, rows)


def _input_fields(read: LineageInput, origins: Sequence[Origin]) -> Iterator[column_lineage_dataset.InputField]:
    for origin in origins:
        step = column_lineage_dataset.Transformation(
            "DIRECT" if origin.step.is_direct else "INDIRECT", origin.step.name, origin.text or None
        )
        yield column_lineage_dataset.InputField(read.address.namespace, read.address.name, origin.column, [step])
