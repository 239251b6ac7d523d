"""Pin and load the side inputs of a transformation: tables such as customers, with which it joins the records."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.definition.model import Definition
from backstream.definition.prepared import as_source_of
from backstream.errors import BackstreamError, PlanError
from backstream.runs.home import Home
from backstream.runs.input_files import PinnedInput
from backstream.runs.plan import Plan
from backstream.workflow.inputs.raw_source import RawSource
from backstream.workflow.runners import Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class LoadedInputs:
    """The side inputs by name: their rows, and the versions that were read."""

    rows: Mapping[str, DataFrame] = field(default_factory=dict)
    pinned: Mapping[str, PinnedInput] = field(default_factory=dict)


def pin_side_inputs(definition: Definition, home: Home, where: str) -> dict[str, PinnedInput]:
    """Return the current version of each side input.

    Raises:
        PlanError: when an input has no files.
        SpecError: when the table of an input does not exist.
    """
    pinned = {}
    for name, side in definition.inputs.items():
        with _name_keys(name), RawSource.open(as_source_of(side, definition), home, where) as listed:
            pinned[name] = _pin(listed)
    return pinned


@contextmanager
def load_side_inputs(
    definition: Definition, home: Home, where: str, runner: Runner, scratch: Path
) -> Iterator[LoadedInputs]:
    """Yield the rows of the side inputs; they can be read during the block.

    Args:
        definition: the definition, with absolute paths.
        home: the folder that holds all state.
        where: the file of the definition, for messages.
        runner: has the session.
        scratch: the folder beside which files that are not local are copied.

    Raises:
        SpecError: when two rows of an input have the same key, or a line of its text files cannot be read.
    """
    if not definition.inputs:
        yield LoadedInputs()
        return
    from backstream.spark.preparation.side_inputs import load_side_input

    rows: dict[str, DataFrame] = {}
    pinned: dict[str, PinnedInput] = {}
    with ExitStack() as open_inputs:
        for name, side in definition.inputs.items():
            with _name_keys(name):
                listed = open_inputs.enter_context(RawSource.open(as_source_of(side, definition), home, where))
                pinned[name] = _pin(listed)
                folder = scratch.with_name(f"{scratch.name}-{name}")
                local = open_inputs.enter_context(listed.local_files(listed.files, folder, runner))
                text = folder.with_name(f"{folder.name}-text")
                open_inputs.callback(shutil.rmtree, text, ignore_errors=True)
                paths = sorted(local.paths.values())
                spark = runner.session(f"inputs.{name} is an argument of your code ({where})")
                place = f"{where}, inputs.{name}"
                rows[name] = load_side_input(spark, side, local.definition.source, paths, text, place)
        yield LoadedInputs(rows, pinned)


def require_unchanged_side_inputs(plan: Plan) -> None:
    """Check that the side inputs have not changed since planning.

    Raises:
        PlanError: with the input, and its planned and its current version.
    """
    path = Path(plan.definition_path)
    if not plan.side_inputs or not path.is_file():
        return
    home = plan.home
    current = pin_side_inputs(resolve_raw_paths(load_definition(path), home), home, str(path))
    for name, planned in plan.side_inputs.items():
        if current.get(name) != planned:
            msg = (
                f"cannot run {plan.run_id}: the input {name!r} changed since it was planned"
                f" ({path}, inputs.{name})\n"
                f"  {planned} -> {current.get(name)}\n\n"
                "hint: create a new plan for the range, which prepares all records again"
            )
            raise PlanError(msg)


@contextmanager
def _name_keys(name: str) -> Iterator[None]:
    """Name the keys of an input in errors about its files, which are listed and copied like those of a source."""
    try:
        yield
    except BackstreamError as error:
        error.args = (str(error).replace("source.", f"inputs.{name}."),)
        raise


def _pin(listed: RawSource) -> PinnedInput:
    content = json.dumps([astuple(file) for file in listed.files])
    return PinnedInput(
        len(listed.files),
        sum(file.size_bytes for file in listed.files),
        hashlib.sha256(content.encode()).hexdigest()[:12],
        listed.table.state.snapshot_id if listed.table else None,
    )
