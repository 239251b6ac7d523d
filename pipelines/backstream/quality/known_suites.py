"""Digests of the bundled suites that Great Expectations accepts.

A test validates these suites again. If a suite or the version of Great Expectations changes, the test reports the
new digest.
"""

from __future__ import annotations

SOUND = {
    "bands": "8964f70b82464580f9511e448917ef84",
    "delivery": "9c085fa0eb798651c8b5a201a10774b0",
    "inputs": "05b26e8efef61c22b3de19264cfea6c4",
    "lateness": "9896539a17a8bda06f04d9c93d4c90a5",
    "records": "a0b7fb87257a0e2d746d6c8bb8585bd1",
    "results": "c08e3b5c90afbc237b94b1f18e6b58e2",
    "volume": "3280f149f8155a5894cb09077c1408e2",
    "window_audit": "c471cfc227c0da93b6965e39334805c5",
    "windows": "e17700d7d9195fd3a0fb14459e554db8",
}
"""Digests of valid suites by name, as `suites.suite_digest` computes them."""
