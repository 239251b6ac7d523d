"""No message prints more than 100 characters of a value, or a character without a shape."""

from __future__ import annotations

import pytest

from backstream.errors import SpecError

LONG = "x" * 5_000
PATH = "/data/" + "folder/" * 30


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (f"got '{LONG}' (clicks.toml)", f"got '{LONG[:100]}..' (clicks.toml)"),
        (f"no column `{LONG}`.", f"no column `{LONG[:100]}..`."),
        (f"got {LONG}", f"got {LONG[:100]}.."),
        (f"got {'n + ' * 90!r}", f"got '{'n + ' * 25}..'"),
        ("there are " + "'a', " * 90, "there are " + "'a', " * 90),
        (f"no file {PATH} or '{PATH}'", f"no file {PATH} or '{PATH}'"),
        ("a sentence " * 30, "a sentence " * 30),
        ("it ends\u202e\x00\n  here", "it ends<U+202E><U+0000>\n  here"),
    ],
)
def test_a_message_shows_the_beginning_of_a_long_value(message: str, shown: str) -> None:
    assert str(SpecError(message)) == shown
