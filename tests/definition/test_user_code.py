"""Load, hash, and explain code of users."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.definition.clicks import definition, refusal

from backstream.definition.columns import declared_columns
from backstream.errors import SpecError, UserCodeError
from backstream.user_code import UserCode

CODE = """\
from shop.rates import RATE


def totals(orders, currency="EUR"):
    return orders


class Alerts:
    def process_element(self, record, context):
        return RATE[record]
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write a package that can be imported."""
    folder = tmp_path / "code/shop"
    folder.mkdir(parents=True)
    for name, text in {"__init__": "", "jobs": CODE, "rates": "RATE = {}\n"}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder.parent)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


@pytest.mark.usefixtures("shop")
def test_a_function_is_loaded_with_the_arguments_that_it_gets() -> None:
    function = UserCode("job", "shop.jobs:totals").load_function(1, {"currency": "USD"})

    assert function(7) == 7


@pytest.mark.parametrize(
    ("target", "options", "error"),
    [
        ("shop.jobs:nothing", {}, "cannot be imported: shop.jobs has no function 'nothing'"),
        ("shop.none:totals", {}, "cannot be imported: ModuleNotFoundError(\"No module named 'shop.none'\")"),
        (
            "shop.jobs:totals",
            {"rate": 2},
            "must take 1 argument and the options {'rate': 2}: got an unexpected keyword argument 'rate'",
        ),
    ],
)
@pytest.mark.usefixtures("shop")
def test_a_function_that_cannot_be_called_is_refused(target: str, options: dict[str, int], error: str) -> None:
    with pytest.raises(SpecError) as refused:
        UserCode("job", target).load_function(1, options)
    assert str(refused.value) == f"job {target} {error}"


def test_the_hash_is_that_of_the_whole_package_also_in_an_archive(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = UserCode("job", "shop.jobs:totals")
    in_folder = code.source_hash()
    with ZipFile(tmp_path / "shop.zip", "w") as archive:
        for file in shop.glob("*.py"):
            archive.write(file, f"shop/{file.name}")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "shop.zip"), *sys.path[1:]])

    assert code.source_hash() == in_folder
    monkeypatch.setattr(sys, "path", [str(shop.parent), *sys.path[1:]])
    (shop / "rates.py").write_text("RATE = {'EUR': 1}\n")
    assert code.source_hash() != in_folder


def test_a_missing_package_is_named_with_a_hint() -> None:
    with pytest.raises(SpecError) as refused:
        UserCode("job", "nowhere.jobs:totals").source_hash()
    assert str(refused.value) == (
        "job nowhere.jobs:totals cannot be imported: there is no package 'nowhere'\n\n"
        "hint: install it, or add its folder to PYTHONPATH"
    )


def test_an_error_shows_the_lines_of_the_user_only(shop: Path) -> None:
    code = UserCode("process function", "shop.jobs:Alerts")
    alerts = code.create(("process_element",), {})

    with pytest.raises(UserCodeError) as failed, code.explain_errors("in chunk 0000"):
        alerts.process_element("EUR", None)

    lines = str(failed.value).splitlines()
    assert lines[0] == "process function shop.jobs:Alerts failed in chunk 0000: KeyError: 'EUR'"
    assert f'File "{shop}/jobs.py", line 10, in process_element' in lines[-4]
    assert (lines[-3], lines[-1]) == ("      return RATE[record]", "  KeyError: 'EUR'")


COLUMNS = 'columns = { total = "bigint" }'
JOB = f'{{ function = "shop.jobs:totals", {COLUMNS} }}'
PROCESS = f'{{ class = "shop.jobs:Alerts", {COLUMNS} }}'


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (
            {"job": JOB},
            "only one of aggregates, job, process, and join can compute the rows, got aggregates and job",
        ),
        (
            {"aggregates": None, "job": JOB, "backfill.keep_firings": "true"},
            "backfill.keep_firings has no meaning with [job]",
        ),
        (
            {"aggregates": None, "process": PROCESS, "window": '{ kind = "session", gap = "1h" }'},
            "window.kind must be tumbling with [process], got 'session'",
        ),
        (
            {"aggregates": None, "process": PROCESS, "lateness.allowed": '"1h"'},
            "lateness.allowed has no meaning with [process], which gets all records, got 1h",
        ),
        (
            {"aggregates": None, "process": PROCESS, "backfill.publish": '"live"'},
            "backfill.publish has no meaning with [process], got 'live'",
        ),
        (
            {"aggregates": None, "job": JOB.replace("total", "run_id")},
            "job.columns.run_id has the name of another result column",
        ),
    ],
)
def test_a_definition_with_code_that_has_no_meaning_is_refused(lines: dict[str, str | None], error: str) -> None:
    assert refusal(lines) == f"{error} (clicks.toml)"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("whatever", "must be a type of Spark SQL such as bigint or string, got 'whatever'"),
        (
            "map<string,int>",
            "has the type map<string,int>, which a result column cannot have (to_json(..) makes text of it)",
        ),
    ],
)
def test_a_declared_type_that_no_column_can_have_is_refused(kind: str, error: str) -> None:
    with pytest.raises(SpecError) as refused:
        declared_columns(definition({"aggregates": None, "job": JOB.replace("bigint", kind)}))
    assert str(refused.value) == f"job.columns.total of clicks {error}"
