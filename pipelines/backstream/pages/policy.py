"""What a browser may do with a page: show it, and run nothing but its own script."""

from __future__ import annotations

import base64
import hashlib


def policy(style: str, script: str = "") -> str:
    """A content security policy under which nothing runs and nothing is loaded but this style and this script.

    Args:
        style: the text of the page's one style element; empty: any inline style, for reports of other versions.
        script: the text of its one script element; empty: none may run.
    """
    styles = f"'{_hash(style)}'" if style else "'unsafe-inline'"
    scripts = f"'{_hash(script)}'" if script else "'none'"
    return (
        f"default-src 'none'; style-src {styles}; script-src {scripts}; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
