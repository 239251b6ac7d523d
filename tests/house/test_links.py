"""Links between documents lead to files and headings that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BLOCK = re.compile(r"```.*?```", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a document, as GitHub derives them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> Iterator[str]:
    """Yield the links of a document to a file or a heading that doesn't exist."""
    for link in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if re.match(r"\w+:", link):
            continue
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            yield link


def test_links_between_documents_lead_somewhere() -> None:
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    assert [f"{page.relative_to(REPOSITORY)}: {link}" for page in pages for link in broken_links(page)] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# The `plan` of a [run](c.md)\n", encoding="utf-8")
    page = tmp_path / "a.md"
    page.write_text(
        "[1](b.md) [2](b.md#the-plan-of-a-run) [3](b.md#other) [4](c.md) [5](https://example.com) [6](#none)",
        encoding="utf-8",
    )
    assert list(broken_links(page)) == ["b.md#other", "c.md", "#none"]
