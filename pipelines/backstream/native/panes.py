"""First, live and final value side by side, and which of them is published."""

from __future__ import annotations

from collections.abc import Sequence

from backstream.core.tables import PANES_KEPT, RECORD_COUNT, pane_count
from backstream.native.parts import value_of
from backstream.native.sql import literal_path, quoted, staging
from backstream.native.task import Chunks, Output
from backstream.native.types import Aggregate


def of_panes(aggregates: Sequence[Aggregate]) -> dict[str, str]:
    """Return the counts and values of panes, over parts that have the pane's name as their suffix."""
    found: dict[str, str] = {}
    for pane in PANES_KEPT:
        count = pane_count(pane)
        found[count] = count
        for each in aggregates:
            found[f"{each.name}__{pane}"] = f"CASE WHEN {count} > 0 THEN {value_of(each, f'__{pane}')} END"
    return found


def published(path: str, output: Output, aggregates: Sequence[Aggregate], pane: str, chunks: Chunks) -> str:
    """Return the columns of the table of windows, out of a file of panes.

    Args:
        path: the file.
        output: the table of windows.
        aggregates: the values of a window.
        pane: the one that is published; windows without it are left out.
        chunks: what the file is split by.
    """
    names = {each.name: f"{each.name}__{pane}" for each in aggregates} | {RECORD_COUNT: pane_count(pane)}
    columns = [f"{quoted(names.get(name, name))} AS {quoted(name)}" for name, _, _ in output.columns]
    split_by = staging("epoch_ms(window_start)", chunks)
    columns += [f"{split_by[name]} AS {name}" for name in output.split_by]
    count = quoted(pane_count(pane))
    return f"SELECT {', '.join(columns)} FROM read_parquet({literal_path(path)}) WHERE {count} > 0"
