"""What differs between two nested settings, key by key, as a person wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """A line per key with another value, such as `window.size: "1h" -> "2h"`, by name; `absent`: no such key."""
    before, after = dict(_flat(old, "")), dict(_flat(new, ""))
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return [f"{key}: {before.get(key, 'absent')} -> {after.get(key, 'absent')}" for key in changed]


def _flat(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Dotted keys and their values as JSON; lists are values."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)
