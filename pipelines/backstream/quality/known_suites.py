"""Digests of the bundled suites that Great Expectations accepts.

A test validates these suites again. If a suite or the version of Great Expectations changes, the test reports the
new digest.
"""

from __future__ import annotations

SOUND = {
    "bands": "8964f70b82464580f9511e448917ef84",
    "delivery": "9c085fa0eb798651c8b5a201a10774b0",
    "inputs": "9b1adc29143a2abcd2c99708dd436373",
    "lateness": "291c0cfeb8d675ba8ab007874939c422",
    "records": "059a3abd0d073527c77cf57f7c491af4",
    "results": "79b5742fc00ca956b1630b76b381f7a5",
    "volume": "3280f149f8155a5894cb09077c1408e2",
    "window_audit": "2ce029e903c80d9a92279d06a3608521",
    "windows": "8fc06322e84ac41de3a9c3f2266dce00",
}
"""Digests of valid suites by name, as `suites.suite_digest` computes them."""
