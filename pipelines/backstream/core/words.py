"""Numbers in the words that all texts for people share."""

from __future__ import annotations


def share_text(part: float, whole: float = 1) -> str:
    """`94.2 %` of a whole; nothing is rounded to none or to all, and of nothing there is no share."""
    if not whole:
        return "-"
    share = round(part / whole, 3)
    if share in (0, 1) and part not in (0, whole):
        return "< 0.1 %" if share == 0 else f"{'>' if part < whole else '<'} {99.9 if part < whole else 100.1} %"
    return f"{share * 100:,.1f}".removesuffix(".0") + " %"
