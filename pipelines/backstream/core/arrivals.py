"""The arrival index: what a source has delivered, in a table small enough to plan by.

Each input file is read once, when it first appears, and leaves one row per source partition, event bucket and
arrival bucket. From these rows alone follow which files hold the events of a range, how many there are, when
partitions were silent, and when the merged watermark reached the end of any window.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backstream.core.generators import StrategyKind
from backstream.core.instants import HOUR_MS
from backstream.core.watermarks import Emission, EmissionModel, Topology
from backstream.core.windows import Cumulate, Sliding, Tumbling

FixedWindow = Tumbling | Sliding | Cumulate

INDEX_VERSION = 1


@dataclass(frozen=True, slots=True)
class BucketGrid:
    """How event and arrival times are put into buckets.

    Event buckets are cut wherever a watermark may have to pass for a window to fire or to be forgotten: at
    `first_cut_ms + n * step_ms`, and `second_cut_ms` after each of these. So the earliest arrival among the events
    from a cut on is exact. Arrival buckets are no wider than the idle timeout, so that within one no partition can
    become idle.
    """

    step_ms: int
    first_cut_ms: int
    second_cut_ms: int
    arrival_width_ms: int

    @classmethod
    def of(cls, window: FixedWindow, emission: Emission, allowed_lateness_ms: int) -> BucketGrid:
        """The grid that answers for these windows and watermarks.

        The bounded watermark is `max - delay - 1`, so it reaches `end - 1` with an event at `end + delay`.
        """
        step_ms = ends_every_ms(window)
        idle_ms = emission.strategy.idle_timeout_ms
        width_ms = min(idle_ms, HOUR_MS) if idle_ms else HOUR_MS
        first_cut_ms = (window.offset_ms + window.size_ms + delay_ms(emission)) % step_ms
        return cls(step_ms, first_cut_ms, allowed_lateness_ms % step_ms, width_ms)

    def bucket(self, cut_ms: int, *, is_second: bool) -> int:
        """The first bucket whose events all lie at or after a cut; the cut must be one of the grid's."""
        base_ms = cut_ms - self.first_cut_ms - (self.second_cut_ms if is_second else 0)
        return 2 * (base_ms // self.step_ms) + (1 if is_second else 0)


def ends_every_ms(window: FixedWindow) -> int:
    """How far apart windows end."""
    if isinstance(window, Tumbling):
        return window.size_ms
    return window.slide_ms if isinstance(window, Sliding) else window.step_ms


def delay_ms(emission: Emission) -> int:
    """By how much a watermark stays behind the greatest event time, besides its one millisecond."""
    return emission.strategy.delay_ms if emission.strategy.kind is StrategyKind.BOUNDED else 0


def is_told_by_index(emission: Emission) -> bool:
    """Whether the index says all that these watermarks depend on."""
    strategy = emission.strategy
    is_plain = not emission.releases_ended and emission.model is EmissionModel.TICK and strategy.interval_ms > 0
    # Behind a gate a partition that wakes is left out until it has caught up, which no index row tells.
    is_merged_simply = emission.topology is not Topology.SUBTASKS or not strategy.idle_timeout_ms
    return is_plain and is_merged_simply and strategy.kind in (StrategyKind.MONOTONOUS, StrategyKind.BOUNDED)


@dataclass(frozen=True, slots=True)
class IndexFolder:
    """Where the index of one source lies: one Parquet file per batch of input files that were read together.

    Its name says all that the rows depend on, so another delay or another expression is another index.
    """

    path: Path
    grid: BucketGrid

    @classmethod
    def of(cls, home: Path, dataset: str, source: Mapping[str, Any], grid: BucketGrid) -> IndexFolder:
        """The folder for a dataset's source section and a grid."""
        content = {"version": INDEX_VERSION, "source": source, "grid": asdict(grid)}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
        return cls(home / "arrivals" / dataset / digest, grid)

    def batches(self) -> list[Path]:
        """The files that are there, oldest name first."""
        return sorted(self.path.glob("batch-*.parquet"))

    @property
    def lock(self) -> Path:
        """Held by whoever is reading new input files."""
        return self.path / "lock"
