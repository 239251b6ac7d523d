from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from backstream.cli.printing import print_rows
from backstream.core.forms import Format

ROWS = pa.table(
    {
        "at": pa.array([datetime(2013, 2, 1, 5, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
        "day": [date(2013, 2, 1)],
        "fare": [Decimal("1.10")],
        "mean": [float("nan")],
        "name": ["a,b"],
        "none": pa.array([None], pa.string()),
        "is_late": [True],
    }
)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (
            Format.JSON,
            (
                '{"at": "2013-02-01T05:00Z", "day": "2013-02-01", "fare": "1.10", "mean": "nan", "name": "a,b",'
                ' "none": null, "is_late": true}\n'
            ),
        ),
        (
            Format.CSV,
            'at,day,fare,mean,name,none,is_late\n2013-02-01T05:00Z,2013-02-01,1.10,nan,"a,b",,True\n',
        ),
        (
            Format.TABLE,
            (
                "at                 day         fare  mean  name  none  is_late\n"
                "2013-02-01T05:00Z  2013-02-01  1.10  nan   a,b            True\n"
            ),
        ),
    ],
)
def test_each_type_of_value_is_printed_so_that_it_reads_back(
    form: Format, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows([ROWS], form, None)

    assert capsys.readouterr().out == said


def test_no_more_tables_are_read_than_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = iter([pa.table({"n": [1, 2]}), pa.table({"n": [3]})])

    print_rows(numbers, Format.CSV, 2)

    assert capsys.readouterr().out == "n\n1\n2\n"
    assert next(numbers)["n"].to_pylist() == [3]
