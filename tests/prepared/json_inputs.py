"""Make lines of JSON, ordinary and odd ones, and files of them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

COLUMNS = """
[source.columns]
t = "timestamp"
ms = "bigint"
b = "tinyint"
h = "smallint"
i = "int"
d = "double"
f = "boolean"
s = "string"
n = "struct<at: string, user: struct<id: string>, x: int>"
"""
SOURCE = f"""
format = "json"
event_time = "t"
arrival_time = "ms"
arrival_time_unit = "ms"
partition = "i"
key = ["n.user.id", "s"]
{COLUMNS}"""
VALUES = ("b", "h", "d", "f", "n.x", "n.at")
"""Columns that aggregates need besides those of the key."""

TIME = "2024-03-01T08:00:00"
LINE = f'{{"t":"{TIME}Z","ms":1}}'


def _cases(text: str) -> list[str]:
    """Return the cases of a text, which are separated by semicolons."""
    return [case.strip() for case in text.split(";")]


_ODD_TEXTS = _cases(
    r"""
    . ; .1234567Z ; ,5Z ; z ; +19:00 ; +18:30 ; +01:60 ; X
    """
)
_ODD_TIMES = _cases(
    r"""
    null ; "" ; 1709280000 ; true ; "yesterday" ; "2024" ; "08:00" ; "2024-02-30T08:00:00Z" ;
    "2024-03-01T24:00:00Z" ; "2024-03-01T08:00:60Z" ; "0000-03-01T08:00:00Z" ; "02024-03-01T08:00:00Z" ;
    "2024-3-1T08:00:00Z" ; "now" ; "20240301T0800Z" ; " 2024-03-01T08:00:00Z" ;
    "2024-03-01T08:00:00 Z"
    """
)
_ODD_FIELDS = _cases(
    r"""
    "b":128 ; "b":200 ; "b":-129 ; "h":32768 ; "i":2147483648 ; "i":1.0 ; "i":1e3 ; "i":"5" ; "i":true ;
    "d":NaN ; "d":Infinity ; "d":-Infinity ; "d":1e400 ; "d":"1" ; "d":"NaN" ; "d":-0 ; "d":-0.0 ; "d":true ;
    "f":1 ; "f":"true" ; "f":True ; "s":5 ; "s":true ; "s":{"a":1} ; "s":[1] ; "n":5 ; "n":[] ; "n":"x" ;
    "n":{"x":"5"} ; "n":{"user":7} ; "n":{"at":7} ; "i":01 ; "i":+1 ; "i":0x1 ; "d":.5 ; "d":1. ; "d":1e ;
    "d":1e-400 ; "d":4.9e-324 ; "d":123456789012345678901234567890 ; "d":9007199254740993 ;
    "i":- ; "i":tru ; "i":1, ; 'i':1 ; i:1 ; "i":/**/1 ; "i":1,"i":2 ; "i":null,"i":2 ; "n":{"x":1,"x":2} ;
    "z":NaN ; "z":Inf ; "z":-INF ; "z":tru ; "z":[1,] ; "s":"\x" ; "s":"\'" ; "s":"\ud800" ; "s":"\udc00" ;
    "s":"\ud800a" ; "z":"\udc00" ; "s":"abc
    """
)
ODD = [
    *(" ", "null", "1", '"x"', "{", "}", "{}", "x", "[1]", "{broken", LINE[:-1], LINE[:9]),
    *(f"{LINE} ", f" {LINE}", f"{LINE}{LINE}", f"{LINE} null", f"{LINE}null{LINE}", f"{LINE},", f"[{LINE}]"),
    *(f"{LINE}//x", f"\ufeff{LINE}", "\ufeff{broken"),
    *(f'{{"t":"{TIME}Z","ms":\n1}}', f'{{"t":"{TIME}Z","ms":\r1}}'),
    # As many objects as lines: two objects are in one line, and one is in two lines.
    f'{LINE}{LINE}\n{{"t":"{TIME}Z","ms":\n1}}',
    *(f'{{"t":{time},"ms":1}}' for time in _ODD_TIMES),
    *(f'{{"t":"{TIME}{rest}","ms":1}}' for rest in _ODD_TEXTS),
    *(f'{{"t":"{TIME}Z"{rest}}}' for rest in ("", ',"ms":null', ',"ms":"1"', ',"ms":1.0', f',"ms":{2**63 - 1}')),
    *(f"{LINE[:-1]},{fields}}}" for fields in _ODD_FIELDS),
    *(f"{LINE[:-1]},{fields}}}" for fields in ('"s":"a\tb"', '"s":"a\0b"')),
    *(f'{LINE[:-1]},"z":{value}}}' for value in ("[" * 1200 + "]" * 1200, '{"a":' * 1200 + "1" + "}" * 1200)),
    *(f'{LINE[:-1]},"z":{value}}}' for value in ("9" * 1200, "0." + "9" * 1200)),
    *(f'{LINE[:-1]},"{name}" :1}}' for name in ("z" * 60_000, r"\u007a" * 9_000)),
]
"""Lines that Spark must read."""

_FIELDS = _cases(
    r"""
    "i":-0 ; "i":null ; "b":-128 ; "d":1 ; "d":1E5 ; "d":0.1 ; "d":-1.7976931348623157e308 ;
    "f":true ; "f":null ; "s":null ; "s":"" ; "s":"\u0000" ; "s":"\ud83d\ude00\n\/" ; "\u0069":7 ; "I":7 ;
    "n":null ; "n":{} ; "n":{"user":null} ; "n":{"user":{"id":"x"},"z":[1,{"x":2}]} ; "z":1,"z":2 ;
    "z":"Info, NaN" ; "":1 ; "z":{"t":1} ; "i" : 1 , "h" : 2 ; "z":"null} null" ; "z":"}{" ;
    "z":[null,{"a":[]}]
    """
)
_TIMES = _cases(
    """
    2024-03-01T08:00:00Z ; 2024-03-01T08:00:00.1Z ; 2024-03-01T08:00:00.123456Z ; 2024-03-01T08:00:00+18:00 ;
    2024-03-01T08:00:00-00:30 ; 2024-03-01T08:00:00-18:00 ; 2024-03-01T08:00:00.5+05:30 ;
    2024-02-29 23:59:59.999Z ; 0001-01-03T00:00:00Z ; 1582-10-10T00:00:00Z ; 1900-01-01T00:00:00.000001Z ;
    1969-12-31T23:59:59.9Z ; 9999-12-29T05:59:59.999999-18:00 ; 2024-03-01 ;
    2024-03-01T08:00Z ; 2024-03-01T08:00+01:00 ; 2024-03-01T08:00:00+01 ; 2024-03-01T08:00:00-0130
    """
)
ACCEPTED = [
    *(f'{{"t":"{time}","ms":1}}' for time in _TIMES),
    *(f"{LINE[:-1]},{fields}}}" for fields in _FIELDS),
    *(
        f"{LINE[:-1]},{fields}}}"
        for fields in ('"s":"\u00e9\u2028\x7f\u20ac"', '"i":\t1', '"s":"' + "x" * 3000 + '"')
    ),
    f'{LINE[:-1]},"z":[{"1," * 2000}1]}}',
    *("", f"{LINE}\r", f"{LINE}\n\n{LINE}\r\n\n", f'{{"t":"{TIME}","ms":1}}'),
    *(f'{LINE[:-1]},"s":"{text}"}}' for text in ("x" * 5_000_000, "\\u00e9" * 30_000, "9" * 3_000, "[{" * 3_000)),
    f'{LINE[:-1]},"z":[' + '{"a":[1,2]},' * 3_000 + "1]}",
]
"""Lines that the native reader must read."""


def random_record(generator: random.Random) -> str:
    """Return a line with random values that the native reader accepts."""
    zone = generator.choice(["Z", "+01:00", "-11:30"])
    record: dict[str, object] = {
        "t": f"2024-03-{generator.randrange(1, 29):02}T{generator.randrange(24):02}:00:00{zone}",
        "ms": generator.randrange(-(2**50), 2**50),
        "b": generator.randrange(-128, 128),
        "h": generator.randrange(-(2**15), 2**15),
        "i": generator.randrange(-(2**31), 2**31),
        "d": generator.choice([generator.random(), generator.randrange(2**53), generator.uniform(-1e300, 1e300)]),
        "f": generator.random() < 0.5,
        "s": "".join(generator.choices('ab"\\/\n\x01\u00e9\u20ac\U0001f600{}[],:', k=generator.randrange(9))),
        "n": {"at": "x", "user": {"id": generator.choice("ab")}, "x": 1, "more": [None, {"a": []}]},
        "z": None,
    }
    kept = [name for name in record if name in ("t", "ms") or generator.random() < 0.7]
    generator.shuffle(kept)
    separators = generator.choice([(",", ":"), (", ", ": ")])
    return json.dumps(
        {name: record[name] for name in kept}, separators=separators, ensure_ascii=generator.random() < 0.5
    )


def mutated_line(generator: random.Random) -> str:
    """Return a random record with a random change of its text."""
    line = random_record(generator)
    place = generator.randrange(len(line))
    insert: str = generator.choice(
        ["", *'{}[]",:\\ \t\n001.e-+aNn/', "null", "NaN", "true", "\\u", LINE, '"i":1,']
    )
    return line[:place] + insert + line[place + generator.randrange(2) :]


def _scattered(generator: random.Random) -> str:
    """Return 3,000 lines, of which every 100th is odd or changed."""
    lines = [random_record(generator) for _ in range(3_000)]
    odd = [line for line in ODD if len(line) < 200]
    for number in range(50, 3_000, 100):
        lines[number] = generator.choice([generator.choice(odd), mutated_line(generator), odd[7], "{broken"])
    return "\n".join(lines)


def write_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Write one file per case, and yield its path with the expected reader.

    It is `native`, `lines` if Spark reads some of them, `spark` for the whole file, or `any`.
    """
    folder.mkdir(parents=True)
    generator = random.Random(7)  # noqa: S311 - test data
    cases = [*((line, "lines") for line in ODD), *((line, "native") for line in ACCEPTED)]
    cases += [(random_record(generator), "native") for _ in range(60)]
    cases += [(mutated_line(generator), "any") for _ in range(300)]
    for number, (line, reader) in enumerate(cases):
        path = folder / f"{number:04}{generator.choice(['.json', '.log', ''])}"
        path.write_bytes(f"{LINE}\n{line}\n{LINE}\n".encode("utf-8", "surrogatepass"))
        yield path, reader
    null_time = '{"t":null,"ms":1,"s":"\u20ac"}\n'
    contents = {
        "no-newline.json": (LINE.encode(), "native"),
        "empty.json": (b"", "native"),
        "blank.json": (b"\n", "native"),
        "blanks.json": (b"\n \n\t\n\n", "lines"),
        "bytes.json": (LINE.encode() + b'\n{"z":"\xff"}\n', "lines"),
        "surrogate.json": (LINE.encode() + b'\n{"z":"\xed\xa0\x80"}\n', "lines"),
        "windows.json": (f"{LINE}\r\n{LINE}\r\n".encode(), "native"),
        "windows-odd.json": (f"{LINE}\r\n\r\n{{broken\r\n\r\r\n{{broken\r\n{null_time}".encode(), "lines"),
        "old mac.json": (f"{LINE}\r{LINE}\r\r{{broken\r".encode(), "lines"),
        "mark.json": (f"\ufeff{LINE}\n{LINE}\n".encode(), "native"),
        "mark-odd~1.json": (f"\ufeff{{broken\n\ufeff{{broken\n{LINE}\n".encode(), "lines"),
        "two members.json.gz": (gzip.compress(LINE.encode()[:9]) + gzip.compress(LINE.encode()[9:]), "native"),
        "a#b%20c&d+e.jsonl.zst": (pa.compress(LINE.encode(), codec="zstd", asbytes=True), "native"),
        "a#b%20c&d+e.jsonl.gz": (gzip.compress(f"{LINE}\n{{broken\n{null_time}".encode()), "lines"),
        "naive.json": (f'{{"t":"{TIME}","ms":1}}\n{{"t":"2024-03-01 08:00:00.25","ms":1}}'.encode(), "native"),
        "mixed.json": (f'{LINE}\n{{"t":"{TIME}","ms":1}}\n'.encode(), "native"),
        "mixed-naive.json": (
            f'{{"t":"{TIME}","ms":1}}\n{LINE}\n{{"t":"{TIME}.5+01:00","ms":1}}'.encode(),
            "native",
        ),
        "null-time.json": (f"{LINE}\n{null_time}".encode(), "lines"),
        "only-odd.json": (b"{broken\n{broken\n", "lines"),
        "many-odd.json": (f"{LINE}\n{{broken\n{null_time}".encode() * 20, "spark"),
        "scattered.json": (_scattered(generator).encode("utf-8", "surrogatepass"), "lines"),
    }
    # These are so large that several tasks read them.
    large = [f'{{"t":"{TIME}Z","ms":{number},"z":"{"x" * 2_000}"}}' for number in range(2_500)]
    contents["large.json"] = ("\n".join(large).encode(), "native")
    for number in range(200, 2_500, 400):
        large[number] = generator.choice(["[1]", '{"t":"2024-02-30T08:00:00Z","ms":1}', null_time, "{broken"])
    contents["large-odd.json"] = ("\n".join([*large, f"[{LINE}]"]).encode(), "lines")
    for name, (content, reader) in contents.items():
        (folder / name).write_bytes(content)
        yield folder / name, reader
