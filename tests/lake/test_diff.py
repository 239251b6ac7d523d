from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstream.lake.diff import diff_rows, summarize_changes

HOUR = datetime(2013, 2, 1, 5, tzinfo=UTC)
NAN = float("nan")
INSTANT = pa.timestamp("us", tz="UTC")
BIG, BIGGER = (
    Decimal("123456789012345678901234567890123456.10"),
    Decimal("123456789012345678901234567890123456.35"),
)
LARGEST = Decimal("9" * 38)


def table(run_id: str, rows: Sequence[tuple[Any, Any]], key: pa.DataType, value: pa.DataType) -> pa.Table:
    """Return rows of the window at five o'clock: key, value."""
    return pa.table(
        {
            "window_start": pa.array([HOUR] * len(rows), INSTANT),
            "window_end": pa.array([HOUR.replace(hour=6)] * len(rows), INSTANT),
            "carrier": pa.array([row[0] for row in rows], key),
            "departures": pa.array([row[1] for row in rows], value),
            "run_id": pa.array([run_id] * len(rows), pa.string()),
        }
    )


def list_changes(
    old: Sequence[tuple[Any, Any]],
    new: Sequence[tuple[Any, Any]],
    key: pa.DataType | None = None,
    value: pa.DataType | None = None,
) -> list[tuple[Any, ...]]:
    """Return the differences: key, change, old value, new value, difference."""
    key, value = key or pa.string(), value or pa.int64()
    changes = diff_rows(table("old", old, key, value), table("new", new, key, value), ["carrier"])
    columns = ("carrier", "change", "old_value", "new_value", "difference")
    return [tuple(row[name] for name in columns) for row in changes.to_pylist()]


def test_added_removed_and_changed_windows_are_distinguished_and_equal_ones_are_left_out() -> None:
    assert list_changes([("AA", 1), ("B6", 2), ("UA", 3)], [("B6", 2), ("UA", 5), ("WN", 4)]) == [
        ("AA", "removed", "1", None, None),
        ("UA", "changed", "3", "5", 2.0),
        ("WN", "added", None, "4", None),
    ]


def test_the_runs_of_both_sides_are_named() -> None:
    old = table("old", [("AA", 1), ("UA", 3)], pa.string(), pa.int64())
    new = table("new", [("UA", 5), ("WN", 4)], pa.string(), pa.int64())

    changes = diff_rows(old, new, ["carrier"])

    assert changes["old_run_id"].to_pylist() == ["old", "old", None]
    assert changes["new_run_id"].to_pylist() == [None, "new", "new"]


def test_a_null_key_is_a_key_like_any_other() -> None:
    assert list_changes([(None, 1), ("UA", 3)], [("UA", 3), (None, 2)]) == [(None, "changed", "1", "2", 1.0)]


def test_a_key_that_is_not_a_number_finds_itself() -> None:
    assert list_changes([(NAN, 1), (1.0, 3)], [(1.0, 3), (NAN, 1)], key=pa.float64()) == []


def test_windows_of_the_same_start_and_another_end_are_others() -> None:
    old = table("old", [("UA", 1)], pa.string(), pa.int64())
    longer = old.set_column(1, "window_end", pa.array([HOUR.replace(hour=7)], INSTANT))

    changes = diff_rows(old, longer, ["carrier"])

    assert changes["change"].to_pylist() == ["removed", "added"]


def test_keys_may_have_any_name_and_the_largest_changes_are_first() -> None:
    def sizes(*values: int) -> pa.Table:
        rows = table(
            "run", [(name, value) for name, value in zip("sml", values, strict=True)], pa.string(), pa.int64()
        )
        return rows.rename_columns(["size" if name == "carrier" else name for name in rows.column_names])

    changes = diff_rows(sizes(1, 2, 3), sizes(2, 9, 0), ["size"])

    largest = summarize_changes([changes], ["size"], 2).largest(2)
    assert largest is not None
    assert [(row["size"], row["difference"]) for row in largest.to_pylist()] == [("m", 7.0), ("l", -3.0)]


@pytest.mark.parametrize("is_old", [True, False])
def test_all_rows_of_one_side_are_sorted_too(is_old: bool) -> None:
    rows, nothing = [("UA", 1), (None, 2), ("AA", 3)], list[tuple[str | None, int]]()

    changes = list_changes(rows, nothing) if is_old else list_changes(nothing, rows)

    kind = "removed" if is_old else "added"
    assert [(each[0], each[1]) for each in changes] == [("AA", kind), ("UA", kind), (None, kind)]


def test_without_keys_the_window_alone_is_compared() -> None:
    old = table("old", [("UA", 1)], pa.string(), pa.int64()).drop_columns(["carrier"])
    new = table("new", [("UA", 2)], pa.string(), pa.int64()).drop_columns(["carrier"])

    (row,) = diff_rows(old, new, []).to_pylist()

    assert (row["change"], row["old_value"], row["new_value"]) == ("changed", "1", "2")


@pytest.mark.parametrize(
    ("kind", "old", "new", "said"),
    [
        (pa.float64(), NAN, NAN, []),
        (pa.float64(), None, None, []),
        (pa.float64(), 0.1, 0.1, []),
        (pa.float64(), 0.25, None, [("UA", "changed", "0.25", None, None)]),
        (pa.float64(), None, 0.25, [("UA", "changed", None, "0.25", None)]),
        (pa.float64(), 1.5, 1.25, [("UA", "changed", "1.5", "1.25", -0.25)]),
        # These values are equal as doubles, so doubles can neither distinguish nor subtract them.
        (pa.int64(), 2**53, 2**53 + 1, [("UA", "changed", "9007199254740992", "9007199254740993", 1.0)]),
        # This difference is not a double, and the next one is beyond 64 bits.
        (pa.int64(), 0, 2**53 + 1, [("UA", "changed", "0", "9007199254740993", 2.0**53)]),
        (pa.int64(), 2**62, -(2**62) - 1, [("UA", "changed", f"{2**62}", f"{-(2**62) - 1}", -(2.0**63))]),
        (pa.decimal128(10, 2), Decimal("1.10"), Decimal("1.20"), [("UA", "changed", "1.10", "1.20", 0.1)]),
        (
            pa.decimal128(12, 8),
            Decimal("1E-8"),
            Decimal(0),
            [("UA", "changed", "0.00000001", "0.00000000", -1e-8)],
        ),
        # These two are equal as doubles, too, and have as many digits as a decimal can have.
        (pa.decimal128(38, 2), BIG, BIGGER, [("UA", "changed", str(BIG), str(BIGGER), 0.25)]),
        (
            pa.decimal128(38, 0),
            LARGEST.copy_negate(),
            LARGEST,
            [("UA", "changed", f"-{LARGEST}", f"{LARGEST}", 2e38)],
        ),
        (pa.string(), "a", "b", [("UA", "changed", "a", "b", None)]),
        (pa.bool_(), True, False, [("UA", "changed", "true", "false", None)]),
        (INSTANT, HOUR, HOUR, []),
    ],
)
def test_values_of_each_type_are_compared_exactly(
    kind: pa.DataType, old: object, new: object, said: list[tuple[Any, ...]]
) -> None:
    changes = list_changes([("UA", old)], [("UA", new)], value=kind)

    assert [row[:4] for row in changes] == [row[:4] for row in said]
    assert [row[4] for row in changes] == pytest.approx([row[4] for row in said])


def test_a_value_that_became_no_number_is_a_change() -> None:
    ((_, change, old, new, _),) = list_changes([("UA", 1.0)], [("UA", NAN)], value=pa.float64())

    assert (change, old, new) == ("changed", "1", "nan")


STATES = st.dictionaries(st.one_of(st.none(), st.sampled_from("ABCDE")), st.one_of(st.none(), st.integers(0, 3)))


@given(STATES, STATES)
def test_any_two_states_differ_by_exactly_the_listed_changes(old: dict[Any, Any], new: dict[Any, Any]) -> None:
    changes = list_changes(list(old.items()), list(new.items()))

    replayed = {key: str(value) if value is not None else None for key, value in old.items()}
    for key, change, old_value, new_value, _ in changes:
        if change == "added":
            assert key not in replayed
        else:
            assert replayed.pop(key) == old_value
        if change != "removed":
            replayed[key] = new_value
    assert replayed == {key: str(value) if value is not None else None for key, value in new.items()}
    assert len({row[0] for row in changes}) == len(changes)


def test_many_changes_are_sorted_by_key() -> None:
    keys = [f"{number:06}" for number in range(3_000)]
    old = [(key, number) for number, key in enumerate(keys)]

    changes = list_changes(old[::-1], [(key, number + 1) for key, number in old if number % 3])

    assert [row[:2] for row in changes] == [(key, "changed" if n % 3 else "removed") for n, key in enumerate(keys)]


@given(st.lists(st.integers(-(10**10), 10**10), min_size=40, max_size=40))
def test_the_difference_of_decimals_is_the_double_that_prints_as_their_exact_difference(units: list[int]) -> None:
    pairs = [(Decimal(0), Decimal(each).scaleb(-4)) for each in units if each]
    old = [(f"k{number:02}", before) for number, (before, _) in enumerate(pairs)]
    new = [(f"k{number:02}", after) for number, (_, after) in enumerate(pairs)]

    changes = list_changes(old, new, value=pa.decimal128(28, 4))

    assert [Decimal(str(change[4])) for change in changes] == [after for _, after in pairs]
