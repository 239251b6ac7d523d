"""Verify a sample of staged rows before their publication, as a check of the quality gate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from backstream.errors import PlanError
from backstream.eventtime.instants import SECOND_MS, instant_text, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.native.raw_input import RawInput
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.results import Check, CheckOutcome, Severity
from backstream.runs.table_schemas import WINDOWS
from backstream.runs.verification import Receipt
from backstream.storage.stores import Stores, is_in_store
from backstream.workflow.verify import hash_parts, verify_sample

_CHECK_NAME = "sampled rows equal those of the reference engine"
_SEEDS = 1_000_000
_SHOWN = 3


def check_staged_sample(plan: Plan, manifests: Sequence[Manifest], windows: pd.DataFrame, sample: int) -> Check:
    """Recompute a sample of staged rows with the reference engine, write the receipt, and return the check.

    The plan decides the sample, so that a repetition gives the same result.

    Args:
        plan: the plan of the run.
        manifests: the manifests of its chunks.
        windows: the windows of the audit.
        sample: the number of rows.
    """
    files = [file for manifest in manifests for file in manifest.files.get(WINDOWS, ())]
    seed = int(plan.plan_hash, 16) % _SEEDS
    try:
        raw = RawInput.from_plan(plan, "verify")
        found = verify_sample(
            raw, windows, sample, seed, lambda spans: _load_staged_rows([file.path for file in files], spans)
        )
    except PlanError as error:
        reason = str(error).partition("\n")[0]
        return Check(_CHECK_NAME, "verify", Severity.CRITICAL, CheckOutcome.ERROR, f"could not run: {reason}")
    Receipt(
        run_id=plan.run_id,
        verified_at=instant_text(int(time.time()) * SECOND_MS),
        seed=seed,
        requested=sample,
        verified=found.compared,
        rows=sum(file.rows for file in files),
        replaced=0,
        findings=tuple(found.findings),
        hashes=hash_parts(plan, found.rows),
    ).write(plan.folder.verification)
    return Check(
        _CHECK_NAME,
        "verify",
        Severity.CRITICAL,
        CheckOutcome.FAIL if found.findings else CheckOutcome.PASS,
        "; ".join(found.findings[:_SHOWN]) or f"{found.compared:,} rows are equal",
        limit=f"all of {sample:,} sampled rows",
        unexpected_count=len(found.findings),
        element_count=found.compared,
    )


def _open_staged(paths: Sequence[str]) -> ds.Dataset:
    """Return the files as one dataset; they are in an object store, or on a disk, or some of them."""
    stores, parts = Stores.from_environment(), []
    for are_stored, group in groupby(sorted(paths, key=is_in_store), key=is_in_store):
        located = [stores.open(path) for path in group]
        filesystem = located[0][0] if are_stored else None
        parts.append(ds.dataset([path for _, path in located], format="parquet", filesystem=filesystem))
    return parts[0] if len(parts) == 1 else ds.dataset(parts)


def _load_staged_rows(paths: Sequence[str], spans: Sequence[Interval]) -> pa.Table:
    """Return the staged rows of windows that start in some intervals."""
    if not paths or not spans:
        return pa.table({})
    start, rows = ds.field("window_start"), _open_staged(paths)
    if all(span.length_ms == 1 for span in spans):
        starts = pa.array([utc_datetime(span.start_ms) for span in spans], rows.schema.field("window_start").type)
        return rows.to_table(filter=start.isin(starts))
    is_wanted = ds.scalar(value=False)
    for span in spans:
        is_wanted |= (start >= utc_datetime(span.start_ms)) & (start < utc_datetime(span.end_ms))
    return rows.to_table(filter=is_wanted)
