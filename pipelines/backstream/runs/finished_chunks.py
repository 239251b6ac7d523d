"""Find the chunks of a plan whose staged files still exist."""

from __future__ import annotations

from functools import partial

from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Chunk, Plan
from backstream.storage.stores import Stores, map_files


def load_finished_manifest(plan: Plan, chunk: Chunk) -> Manifest | None:
    """Return the manifest of a chunk; None if it is unfinished, or lost its staged files before publication.

    After the publication the files may be missing, since another run may have replaced them.
    """
    file = plan.folder.manifest(chunk.chunk_id)
    if not file.exists():
        return None
    manifest = Manifest.read(file)
    return manifest if plan.folder.publication.exists() or is_staged(manifest) else None


def list_unfinished_chunks(plan: Plan) -> list[str]:
    """Return the ids of the unfinished chunks."""
    return [chunk.chunk_id for chunk in plan.chunks if load_finished_manifest(plan, chunk) is None]


def is_staged(manifest: Manifest) -> bool:
    """Return whether all staged files of a chunk exist and are those that the job wrote.

    Vacuum removes the files of a run that did not publish them in time, and a disk may lose some.
    """
    stores, files = Stores.from_environment(), [file for table in manifest.files.values() for file in table]
    return all(map_files(partial(_is_intact, stores), {file.path: file for file in files}))


def _is_intact(stores: Stores, file: StagedFile) -> bool:
    """Return whether a file exists with the size and the footer of its creation."""
    try:
        footer = stores.read_footer(file.path)
    except (OSError, ValueError):
        return False
    return footer.size_bytes == file.size_bytes and file.digest in ("", footer.digest)
