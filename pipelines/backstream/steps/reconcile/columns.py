"""Which column of a live system's output is which of ours: `window_start=ts:s,departures=n,mean_delay_min=`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backstream.core.errors import SpecError

START, END = "window_start", "window_end"
UNITS = ("s", "ms", "us")


@dataclass(frozen=True, slots=True)
class Column:
    """One of our columns in their output; `unit` says what a number of it counts since 1970, where it is one."""

    name: str
    theirs: str
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns to be compared, by our names; `end` None: the definition tells where a window ends."""

    start: Column
    end: Column | None
    keys: tuple[Column, ...]
    aggregates: tuple[Column, ...]

    def all(self) -> list[Column]:
        """Every column that is read."""
        return [self.start, *([self.end] if self.end else []), *self.keys, *self.aggregates]


def mapping(text: str, known: Sequence[str]) -> dict[str, Column | None]:
    """What `--columns` says: our name to their column; None where it is to be left out.

    Raises:
        SpecError: when a part is not `NAME=THEIRS`, or names a column that we do not have.
    """
    found: dict[str, Column | None] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, is_pair, theirs = (each.strip() for each in part.partition("="))
        if not is_pair or name not in known:
            msg = f"--columns must be NAME=THEIRS with a NAME of {', '.join(known)}, got {part!r}"
            raise SpecError(msg)
        found[name] = _column(name, theirs) if theirs else None
    return found


def _column(name: str, text: str) -> Column:
    theirs, _, unit = text.rpartition(":")
    if name in (START, END) and unit in UNITS and theirs:
        return Column(name, theirs, unit)
    return Column(name, text)


def columns(
    said: Mapping[str, Column | None],
    keys: Sequence[str],
    aggregates: Sequence[str],
    there: Sequence[str],
    where: str,
) -> Columns:
    """The columns to compare, all of them there.

    Args:
        said: what `mapping` made.
        keys: our key columns.
        aggregates: our aggregates.
        there: the columns of theirs.
        where: what theirs is called, for messages.

    Raises:
        SpecError: naming the columns that theirs lacks, or that may not be left out.
    """
    needed = [START, *keys]
    if left_out := [name for name in needed if name in said and said[name] is None]:
        msg = f"{', '.join(left_out)} cannot be left out: windows are matched by it (--columns)"
        raise SpecError(msg)
    wanted = {name: said.get(name, Column(name, name)) for name in (*needed, *aggregates)}
    end = said.get(END, Column(END, END) if END in there else None)
    kept = [each for each in (*wanted.values(), end) if each is not None]
    if lacking := [each for each in kept if each.theirs not in there]:
        raise _lacking(lacking, there, where)
    values = tuple(each for name in aggregates if (each := wanted[name]) is not None)
    if not values:
        msg = f"nothing is left to compare: --columns leaves out {', '.join(aggregates)}"
        raise SpecError(msg)
    return Columns(_there(wanted[START]), end, tuple(_there(wanted[name]) for name in keys), values)


def _there(column: Column | None) -> Column:
    assert column is not None  # noqa: S101 - it was refused to leave it out
    return column


def _lacking(lacking: Sequence[Column], there: Sequence[str], where: str) -> SpecError:
    names = ", ".join(
        each.theirs if each.theirs == each.name else f"{each.theirs} (for {each.name})" for each in lacking
    )
    return SpecError(
        f"{where} has no column {names}\n  it has {', '.join(there)}\n\n"
        "hint: --columns NAME=THEIRS says what a column is called there; NAME= leaves an aggregate out"
    )
