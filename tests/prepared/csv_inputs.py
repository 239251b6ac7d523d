"""Write random files of CSV: usual cells, and those that readers of CSV understand in different ways."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

COLUMNS = {
    "at": "timestamp",
    "i": "bigint",
    "h": "tinyint",
    "n": "int",
    "x": "double",
    "b": "boolean",
    "s": "string",
}
_LONG_INTEGERS = ("9223372036854775807", "9223372036854775808")
_LONG_NUMBERS = ("0.1234567890123456", "0.10000000000000001", "1234567890123456789", "1e400", "1e-400")
_WRONG_TIMES = ("2024-03-01T24:00:00Z", "2024", "08:00", "2024-02-30T05:00Z", "now")
_SEPARATED = ("a,b", "a;b", "a|b", "x\ty", "  lead", "trail  ", "#c")
UNUSUAL = {
    "at": ("2024-03-01", "2024-03-01 05:00", *_WRONG_TIMES),
    "i": ("007", "+5", "-0", "1.0", "1e3", " 5", "0x1f", "1_000", *_LONG_INTEGERS),
    "h": ("127", "128", "-128", "-129", "5.0"),
    "n": ("2147483647", "2147483648", "-2147483648"),
    "x": ("1e5", "1E-3", "-0.0", "1d", "Inf", "NaN", "1.", ".5", "+1.5", "12,5", *_LONG_NUMBERS),
    "b": ("TRUE", "False", "1", "yes", "t", " true"),
    "s": (*_SEPARATED, *"\u00e9'\u00a0\x01", "\ufeffx", "null", "back\\slash", '5" pipe', "a\\", "\\N", 'q\\"q'),
}
ANY = ("", "", '""', " ", "NULL", "-", "abc")
_FEW, _MOST = 0.1, 0.8
LINES = ("", '"', "  ", "\t", ",,,,", "\x00", '"a"b,c')


@dataclass(frozen=True)
class Form:
    """The form of some files: their separator, their escape, and whether each begins with its columns."""

    separator: str = ","
    escape: str = "\\"
    has_header: bool = True
    newline: str = "\n"

    @property
    def options(self) -> str:
        """The options of the source in TOML."""
        options = {"header": str(self.has_header).lower(), "sep": self.separator, "escape": self.escape}
        return "options = { " + ", ".join(f"{name} = '{value}'" for name, value in options.items()) + " }"


FORMS = {
    "usual": Form(),
    "doubled quotes": Form(escape='"', newline="\r\n"),
    "tabs": Form("\t"),
    "semicolons": Form(";", escape='"'),
    "bars without a header": Form("|", has_header=False),
}


def write_file(path: Path, form: Form, seed: int, lines: int = 60, rate: float = 0.02) -> None:
    """Write a file; a share of its cells and lines is unusual."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    order = [*COLUMNS]
    if form.has_header:
        order = ["at", *(name for name in order[1:] if chance.random() < _MOST), "another"]
        chance.shuffle(order)
    header = form.separator.join(name.upper() if chance.random() < _FEW else name for name in order)
    texts = [header] if form.has_header else []
    for _ in range(lines):
        cells = [_cell(name, form, chance, rate) for name in order]
        if chance.random() < rate / 5:
            cells = chance.choice((cells[:-1], [*cells, "more"]))
        line = form.separator.join(cells)
        broken = chance.choice((*LINES, f'{line}"', f"{line}\\", f" {line}"))
        texts.append(broken if chance.random() < rate / 5 else line)
    end = form.newline if chance.random() < _MOST else ""
    content = (form.newline.join(texts) + end).encode()
    path.write_bytes(content.replace(b"trail", b"\xff"))


def _cell(name: str, form: Form, chance: random.Random, rate: float) -> str:
    usual = {
        "at": f"2024-03-01T{chance.randrange(24):02}:{chance.randrange(60):02}:00Z",
        "i": str(chance.randrange(-(10**6), 10**6)),
        "h": str(chance.randrange(-100, 100)),
        "n": str(chance.randrange(10**6)),
        "x": repr(round(chance.random() * 1000, 2)),
        "b": chance.choice(("true", "false")),
    }.get(name, chance.choice(("home", "shop", "cart")))
    text = chance.choice((*UNUSUAL.get(name, ("a b",)), *ANY)) if chance.random() < rate else usual
    if '"' in text:
        is_written = form.escape == '"' and text != '""'
        return f'"{text.replace(chr(34), chr(34) * 2)}"' if is_written else text
    return f'"{text}"' if form.separator in text or chance.random() < _FEW else text
