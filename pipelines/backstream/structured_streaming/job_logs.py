"""Read all logs of a job of Structured Streaming: checkpoints, kept batches, progress reports, event logs."""

from __future__ import annotations

from collections.abc import Sequence

from backstream.storage.stores import Stores
from backstream.structured_streaming.batches import BatchLog, merge_logs, require_sound
from backstream.structured_streaming.checkpoint import read_checkpoint
from backstream.structured_streaming.kept_batches import add_to_kept, read_kept
from backstream.structured_streaming.progress import read_progress


def read_job_logs(checkpoints: Sequence[str], reports: Sequence[str], own: str, stores: Stores) -> BatchLog:
    """Return the batches in the logs of one job, without an unfinished last one; what two logs have is compared.

    Args:
        checkpoints: checkpoints, and folders of kept batches: their paths or addresses.
        reports: files of progress reports, and event logs.
        own: a folder of kept batches. It gets the batches, which are known from then on.
        stores: the object stores.

    Raises:
        SpecError: when a log has another form, or the logs contradict each other.
        StorageError: when a store cannot be read.
    """
    logs = [read_kept(address, stores) or read_checkpoint(address, stores) for address in checkpoints]
    logs += [read_progress(location, stores) for location in reports]
    merged, _ = add_to_kept(require_sound(merge_logs(logs)), read_kept(own, stores), own, stores)
    return merged
