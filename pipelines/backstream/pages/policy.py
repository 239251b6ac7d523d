"""Return the content security policy of a page. Each Airflow process loads this module, so it stays light."""

from __future__ import annotations

import base64
import hashlib


def policy(style: str, script: str = "") -> str:
    """Return a content security policy that allows only this style and this script.

    Args:
        style: text of the style element; empty to allow any inline style, for reports of other versions.
        script: text of the script element, which may also load pages of this server; empty to allow no script.
    """
    styles = f"'{_hash(style)}'" if style else "'unsafe-inline'"
    scripts = f"'{_hash(script)}'" if script else "'none'"
    connections = "'self'" if script else "'none'"
    return (
        f"default-src 'none'; style-src {styles}; script-src {scripts}; img-src data:; font-src data:; "
        f"connect-src {connections}; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
