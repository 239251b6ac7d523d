"""Values that one run takes instead of its definition's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backstream.core.errors import SpecError
from backstream.core.generators import StrategyKind
from backstream.core.plan import Mode
from backstream.definition.load import parse
from backstream.definition.model import Definition

DELAYED = (StrategyKind.BOUNDED, StrategyKind.PUNCTUATED, StrategyKind.TIME_LAG)
"""Strategies whose watermarks lag behind by `watermark.delay`."""

OVERRIDABLE = (
    "watermark.delay",
    "watermark.idle_timeout",
    "lateness.allowed",
    "backfill.chunk",
    "approval.when",
)
"""What may differ from run to run without making it another dataset."""


def overridden(definition: Definition, overrides: Mapping[str, str], mode: Mode) -> Definition:
    """The definition with some of its keys taken otherwise.

    Args:
        definition: as it is in its file.
        overrides: dotted keys of `OVERRIDABLE` to values as a person writes them, such as `1h`.
        mode: of the run; a recompute has no watermarks that could be changed.

    Raises:
        SpecError: naming a key that may not be overridden or has no meaning here, or a wrong value.
    """
    for key in overrides:
        if complaint := _meaningless(definition, key, mode):
            msg = f"{key} {complaint}, got {overrides[key]!r} (overrides of {definition.name})"
            raise SpecError(msg)
    content: dict[str, Any] = definition.model_dump(mode="json")
    for key, value in overrides.items():
        section, _, name = key.partition(".")
        content[section] = content[section] | {name: value}
    return parse(content, f"overrides of {definition.name}")


def _meaningless(definition: Definition, key: str, mode: Mode) -> str | None:
    """Why a key cannot be overridden; None when it can."""
    if key not in OVERRIDABLE:
        return f"cannot be overridden, only {', '.join(OVERRIDABLE)} can"
    if mode is Mode.RECOMPUTE and key.startswith(("watermark.", "lateness.")):
        return "has no meaning with the mode recompute, in which nothing is late"
    strategy = definition.watermark.strategy
    if key == "watermark.delay" and strategy not in DELAYED:
        return f"has no meaning with strategy = {strategy.value!r}"
    return None
