"""The path of a new definition names a folder, so that later files are read too."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstream.source.archive.files import list_archive

LINE = '{"at": "2026-01-01T00:00:00Z"}\n'


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_an_empty_file_of_text_does_not_narrow_the_path(tmp_path: Path, suffix: str) -> None:
    for day in (1, 2):
        (tmp_path / f"2026-01-0{day}{suffix}").write_text(LINE if suffix == ".json" else "at\n2026-01-01\n")
    (tmp_path / f"2026-01-03{suffix}").touch()

    archive = list_archive(str(tmp_path))

    assert (len(archive.files), archive.source_path(), archive.others) == (2, str(tmp_path), ())
