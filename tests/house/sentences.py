"""Cut Markdown documents into sentences, and find those that break the style guide."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_WORDS = 25
"""The most words between two full stops, semicolons, or colons."""
BANNED = re.compile(
    r"\b(?:told|tells?|said|says?|anew|again and again|whoever|somebody|nobody|one's own|ours|theirs|simply"
    r"|obviously|lies? in|rests? on|stands? for|came|went|gone|heard|hears?|in vain|at hand|hence|hardly"
    r"|lets? go)\b",
    re.IGNORECASE,
)
"""Words that the style guide replaces, as whole words outside of code."""
_NO_TEXT = re.compile(r"```.*?```|<!--.*?-->|^\[[^\]]+\]:.*?$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"\s*(?:[-*>]|#+|\d+\.) +")
_END = re.compile(r"(?<=[.?!])[\"')*]*\s+(?=[(\"'*]*(?:[A-Z0-9`]|--|backstream))|[;:]\s+|[;:]$")


def sentences(markdown: str) -> Iterator[str]:
    """Yield the sentences of a document, without code and addresses; a table cell is a paragraph."""
    text = _LINK.sub(r"\1", _NO_TEXT.sub("", markdown))
    text = re.sub(r"`[^`]*`", "`", text).replace("e.g.,", "such as").replace("..", "")
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_row, is_item = line.lstrip().startswith("|"), _ITEM.match(line) is not None
        if is_row or is_item or not line.strip():
            yield from _END.split(" ".join(paragraph))
            paragraph = []
        if is_row:
            for cell in re.split(r"(?<!\\)\|", line.strip()):
                yield from _END.split(cell)
        elif line.strip():
            paragraph.append(_ITEM.sub("", line, count=1).strip() if is_item else line.strip())


def find_faults(markdown: str) -> Iterator[str]:
    """Yield each sentence that is too long or has a banned word, after the reason."""
    for sentence in sentences(markdown):
        count = sum(bool(re.search(r"[\w`]", word)) for word in sentence.split())
        if count > MAX_WORDS:
            yield f"{count} words: {sentence}"
        for word in BANNED.findall(sentence):
            yield f"{word!r}: {sentence}"
