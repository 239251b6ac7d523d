"""Verify a run: recompute a random sample of its windows from raw input, and compare them with the table."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from backstream import __version__
from backstream.definition.loader import require_unchanged_code, require_unchanged_definition
from backstream.errors import BackstreamError, PlanError
from backstream.eventtime.instants import SECOND_MS, instant_text, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Cumulate, Session, TimeWindow
from backstream.lake.reader import load_published_rows, load_rows_in_spans
from backstream.lake.scans import count_rows
from backstream.native.published_rows import PublishedRows
from backstream.native.raw_input import RawInput, Target
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.results import Check, CheckOutcome, Receipt, Severity
from backstream.runs.table_schemas import METRICS, WINDOWS
from backstream.source.input_versions import require_unchanged_inputs
from backstream.storage.stores import Stores, is_in_store
from backstream.workflow.explain import compare_row
from backstream.workflow.explanation import Difference
from backstream.workflow.recomputation.windows import find_session_targets, recompute_windows
from backstream.workflow.report import report_run

_EXTRA_WEIGHT = 3
"""The weight of a window with late records, or at an edge of a chunk, above that of other windows."""
_MAX_FINDINGS = 20
_Rows = Sequence[Mapping[str, Any]]
_CHECK_NAME = "sampled rows equal those of the reference engine"
_SEEDS = 1_000_000
_SHOWN = 3


def verify_run(plan: Plan, sample: int, seed: int) -> Receipt:
    """Recompute a sample of the windows of a published run, and write the receipt and the report.

    Args:
        plan: the plan of the run.
        sample: the number of rows.
        seed: the seed of the sample.

    Raises:
        PlanError: when the reference engine cannot compute the dataset.
    """
    home, raw = plan.home, RawInput.from_plan(plan, "verify")
    findings = list(_find_changes(plan))
    verified = _Verification(0, 0, (), ())
    try:
        frame = _load_frame(plan)
        window = raw.definition.window_spec
        are_in_us = isinstance(window, Session) and window.per_ms > 1
        load = partial(load_rows_in_spans, home, plan.dataset, are_in_us=are_in_us)
        verified = _verify_sample(raw, frame, sample, seed, load)
    except PlanError as error:
        findings.append(_first_line(error))
    findings += verified.findings
    receipt = Receipt(
        run_id=plan.run_id,
        verified_at=instant_text(int(time.time()) * SECOND_MS),
        seed=seed,
        requested=sample,
        verified=verified.compared,
        rows=count_rows(home, plan.dataset, plan.range),
        replaced=verified.replaced,
        findings=tuple(dict.fromkeys(findings)),
        hashes=_hash_parts(plan, verified.rows),
    )
    receipt.write(plan.folder.verification)
    report_run(plan)
    return receipt


@dataclass(frozen=True, slots=True)
class _Verification:
    """The result of a sample: rows compared, rows of other runs, a sentence per disagreement, the rows."""

    compared: int
    replaced: int
    findings: Sequence[str]
    rows: _Rows


def _verify_sample(
    raw: RawInput, frame: pd.DataFrame, sample: int, seed: int, load_rows: Callable[[Sequence[Interval]], pa.Table]
) -> _Verification:
    """Return the comparison of a sample of windows with their rows.

    Args:
        raw: the input of the run.
        frame: the metrics of the run: a row per window and source partition.
        sample: the number of rows.
        seed: the seed of the sample.
        load_rows: function that returns the rows of windows that start in some intervals.

    Raises:
        PlanError: when an input file is not as planned.
    """
    windows = _draw_windows(raw.plan, frame, sample, seed)
    if not windows:
        return _Verification(0, 0, (), ())
    if isinstance(raw.definition.window.spec(), Session):
        rows = PublishedRows(load_rows([Interval(*window) for window in windows]), raw)
        targets = _draw_sessions(raw, windows, sample, str(seed), rows)
        # A session can begin before the hour of the record by which it was drawn.
        rows = PublishedRows(load_rows([_start_of(target.window) for target in targets]), raw)
    else:
        rows = PublishedRows(load_rows([_start_of(window) for window in windows]), raw)
        targets = _draw_targets(raw, windows, sample, str(seed), rows)
    by_target = rows.find(targets)
    findings, compared, replaced = [], [], 0
    for again in recompute_windows(raw, targets, is_sample=True):
        row = by_target.get(again.target)
        if row is not None and row["run_id"] != raw.plan.run_id:
            replaced += 1
            continue
        compared.append(row or {})
        findings += [_finding(raw, again.target, difference) for difference in compare_row(raw, again, row)]
    return _Verification(len(compared), replaced, findings, [row for row in compared if row])


def _find_changes(plan: Plan) -> Iterator[str]:
    """Yield a sentence per change of definition, code, or inputs since the plan."""
    for check in (require_unchanged_definition, require_unchanged_code, require_unchanged_inputs):
        try:
            check(plan)
        except BackstreamError as error:
            facts = [line.strip() for line in str(error).split("\n\n")[0].splitlines()]
            yield "; ".join(facts)


def _load_frame(plan: Plan) -> pd.DataFrame:
    """Return the metrics of a run: those that were audited, or else those in the lake."""
    if plan.folder.audit_frame.is_file():
        return pd.read_parquet(plan.folder.audit_frame)
    rows = load_published_rows(plan.home, plan.dataset, METRICS, plan.range)
    frame: pd.DataFrame = rows.to_pandas()
    return frame[frame["run_id"] == plan.run_id]


def _draw_windows(plan: Plan, frame: pd.DataFrame, count: int, seed: int) -> list[TimeWindow]:
    """Draw windows without replacement; those with late records and those at edges are likelier."""
    sums = frame.groupby(["window_start", "window_end"], as_index=False)[["events", "late", "dropped"]].sum()
    sums = sums[sums["events"] > 0]
    starts, ends = (
        sums[name].dt.as_unit("ms").astype("int64").tolist() for name in ("window_start", "window_end")
    )
    edges = {edge for chunk in plan.chunks for edge in (chunk.start_ms, chunk.end_ms)}
    edges |= {min(starts, default=0), max(ends, default=0)}
    draw, order = random.Random(seed), []  # noqa: S311 - a sample, not a secret
    for start_ms, end_ms, late in zip(starts, ends, (sums["late"] + sums["dropped"]).tolist(), strict=True):
        is_edge = bool(edges & {start_ms, end_ms})
        weight = 1 + _EXTRA_WEIGHT * bool(late) + _EXTRA_WEIGHT * is_edge
        order.append((draw.random() ** (1 / weight), TimeWindow(start_ms, end_ms)))
    return sorted(window for _, window in sorted(order, reverse=True)[:count])


def _draw_targets(
    raw: RawInput, windows: Sequence[TimeWindow], count: int, salt: str, rows: PublishedRows
) -> list[Target]:
    """Draw rows of these windows: keys that have records, and keys that have published rows."""
    per_window, spec = -(-count // len(windows)), raw.definition.window.spec()
    candidates: dict[int, set[Target]] = {window.start_ms: set() for window in windows}
    drawn = raw.draw_keys([Interval(*window) for window in windows], per_window, salt)
    for window, keys in zip(windows, drawn, strict=True):
        candidates[window.start_ms] |= {Target(_step(spec, window, event_ms), key) for key, event_ms in keys}
    for target in rows.draw(per_window, salt, by_start=True):
        candidates[target.window.start_ms].add(target)
    chosen = [target for targets in candidates.values() for target in _shuffle(targets, salt)[:per_window]]
    return _shuffle(chosen, salt)[:count]


def _start_of(window: TimeWindow) -> Interval:
    return Interval(window.start_ms, window.start_ms + 1)


def _draw_sessions(
    raw: RawInput, windows: Sequence[TimeWindow], count: int, salt: str, rows: PublishedRows
) -> list[Target]:
    """Draw sessions: those of records in these windows, and those that the table has there."""
    drawn = raw.draw_keys([Interval(*window) for window in windows], -(-count // len(windows)), salt)
    found = find_session_targets(raw, [seed for seeds in drawn for seed in seeds])
    # A session that begins before the range belongs to another run.
    own = {each for each in found if raw.plan.since_ms <= each.window.start_ms < raw.plan.until_ms}
    return _shuffle(own | set(rows.draw(count, salt, by_start=False)), salt)[:count]


def _shuffle(targets: Iterable[Target], salt: str) -> list[Target]:
    """Return targets in an order that depends on their content and a salt only."""
    return sorted(
        targets, key=lambda target: hashlib.sha256(f"{salt}{target.window}{target.key}".encode()).hexdigest()
    )


def _step(spec: Any, window: TimeWindow, event_ms: int) -> TimeWindow:
    """Return the shortest cumulating window of an event, or the window itself."""
    return spec.assign(event_ms)[0] if isinstance(spec, Cumulate) else window


def _finding(raw: RawInput, target: Target, difference: Difference) -> str:
    key = " ".join(f"{name}={value}" for name, value in zip(raw.definition.source.key, target.key, strict=True))
    return f"{Interval(*target.window)} {key}: {difference}"


def _hash_parts(plan: Plan, rows: _Rows) -> dict[str, str]:
    """Return hashes of the inputs, the code, the compared rows, the plan, and the definition of a run."""
    inputs = [[file.path, file.size_bytes, file.modified_ms, file.rows] for file in plan.inputs]
    published = sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)
    code = {"backstream": __version__, "planned_by": plan.planned_by_version, **plan.code}
    content = {"inputs": inputs, "code": code, "rows": published}
    digests = {
        name: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
        for name, value in content.items()
    }
    return digests | {"plan": plan.plan_hash, "definition": plan.definition_hash}


def _first_line(error: Exception) -> str:
    return "; ".join(line.strip() for line in str(error).split("\n\n", maxsplit=1)[0].splitlines())


def receipt_text(receipt: Receipt) -> Iterator[str]:
    """Yield the lines of a receipt."""
    share = f"{receipt.share:.2%}".replace("%", " %")
    counts = f"{receipt.verified:,} of {receipt.rows:,} rows verified ({share})"
    if receipt.verified > receipt.rows:  # a window of dropped records has no row, and the table must have none
        counts = f"{receipt.verified:,} windows of keys verified; the table has {receipt.rows:,} rows"
    yield f"{receipt.run_id}  {counts}, seed {receipt.seed}"
    if receipt.replaced:
        yield f"{receipt.replaced:,} rows of the sample belong to later runs and were not compared"
    for name, digest in receipt.hashes.items():
        yield f"{name:<12}{digest}"


def list_findings(receipt: Receipt) -> Iterator[str]:
    """Yield the first findings, and the number of further ones."""
    yield from receipt.findings[:_MAX_FINDINGS]
    if len(receipt.findings) > _MAX_FINDINGS:
        yield f"and {len(receipt.findings) - _MAX_FINDINGS:,} more"


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
        found = _verify_sample(
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
        hashes=_hash_parts(plan, found.rows),
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
