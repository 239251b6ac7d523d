"""A public name has a caller outside its module, so a reader knows which names others depend on."""

from __future__ import annotations

from pathlib import Path

from tests.house.public_names import Module, find_addresses, find_needless, find_uses, load_modules

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = ("pipelines", "dags", "plugins", "demo", "benchmarks", "docs")
TEXTS = ("docs/*.md", "pyproject.toml", "pipelines/**/*.toml")
"""Files for users, which can name a function as `module:name`, or a module."""
CONVENTIONAL = {"main", "log"}
"""The entry point of a program, and the logger of a module."""


def python_files(*folders: str) -> list[str]:
    paths = [path for folder in folders for path in sorted((REPOSITORY / folder).rglob("*.py"))]
    return [path.read_text(encoding="utf-8") for path in paths]


def test_a_public_name_has_a_caller_outside_its_module() -> None:
    modules = load_modules(REPOSITORY / "pipelines" / "backstream")
    used = set().union(*map(find_uses, python_files(*PROGRAMS)))
    for pattern in TEXTS:
        for path in REPOSITORY.glob(pattern):
            addresses = find_addresses(path.read_text(encoding="utf-8"))
            named = [modules[module] for address in addresses if (module := ".".join(address)) in modules]
            used |= addresses | {(module.name, name) for module in named for name in module.public}
    used |= {(module, name) for module in modules for name in CONVENTIONAL}
    tested = set().union(*map(find_uses, python_files("tests")))
    assert list(find_needless(modules, used, tested)) == []


def test_the_rule_finds_what_it_is_for() -> None:
    rates = Module.from_source(
        "backstream.rates",
        """
LIMIT = 3
MAX_ROWS = 40
T = int

class Rate: ...
class RateError(Exception): ...
class Helper: ...

def load_rate(path: T) -> Rate:
    '''Load a rate.

    Raises:
        RateError: when there is none.
    '''
    return _parse(Helper(), LIMIT)

def convert(): return MAX_ROWS
def old(): ...
def only_tested(): ...

@app.command()
def rate_command(): ...

@dataclass(frozen=True)
class Row: ...
""",
    )
    used = find_uses("from backstream import rates\nrates.load_rate(1)")
    tested = find_uses("from backstream.rates import convert, only_tested\nx = 'backstream.rates.LIMIT'")
    assert list(find_needless({rates.name: rates}, used, tested)) == [
        "backstream.rates.Helper is used only in its module: call it _Helper",
        "backstream.rates.MAX_ROWS is used only in its module: call it _MAX_ROWS",
        "backstream.rates.Row is not used: delete it",
        "backstream.rates.convert is used only by tests: delete it",
        "backstream.rates.old is not used: delete it",
        "backstream.rates.only_tested is used only by tests: delete it",
    ]
