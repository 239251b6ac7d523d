"""Find how far the sessions of chunks extend, in a native task."""

from __future__ import annotations

from backstream.chunks.group import ChunkGroup, require_undamaged
from backstream.chunks.tasks import Tasks
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Session
from backstream.native.sessions.halo import HaloTask
from backstream.native.supported import read_spec
from backstream.native.task_runner import run_halo_task


def find_native_halo(group: ChunkGroup, window: Session, tasks: Tasks) -> Interval:
    """Return the interval of event time that the sessions of chunks need.

    Raises:
        ContractError: when a damaged file may have an event of a session.
    """
    source, files = group.definition.timed_source, group.plan.inputs
    reading = read_spec(group.definition, group.plan.columns, source.key)
    task = HaloTask(
        reading, source.key, window.gap_ms, group.interval, files, can_be_parts(group), tasks.memory_mb
    )
    ((halo, searched),) = tasks.run(run_halo_task, [task])
    require_undamaged(group.plan.damaged, searched)  # it is an error only if the search could need the file
    return halo


def can_be_parts(group: ChunkGroup) -> bool:
    """Return whether a session can be a part of what a search for its events finds: it counts duplicates, too."""
    return group.is_replay or bool(group.definition.source.deduplicate_on)
