"""Check that each fault between an input file and a committed row is detected, and that nothing is published."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from allpairspy import AllPairs
from tests.chain.breaks import AFTER, NAMES, WITHIN, Staged, broken_write, flip_a_fate, flipped_fate, lost_row
from tests.chain.job import KINDS, plan_of, publish, rows_published, write_definition

from backstream.errors import BackstreamError
from backstream.jobs import replay
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Mode, Plan
from backstream.runs.progress import Phase, find_phase
from backstream.runs.results import Audit, CheckOutcome, Receipt

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]
STAGED = "a file staged for table `events{}` breaks its contract"
GONE, CUT, TWICE, OTHER = (
    "there is no such file",
    r"has \d+ bytes, expected \d+ by its manifest|cannot be read as Parquet",
    "is listed more than once",
    r"has \d+ bytes, expected \d+ by its manifest|is not the file that the job wrote",
)
SENTENCES = dict(zip(AFTER, (GONE, CUT, TWICE, OTHER, OTHER, OTHER, OTHER, OTHER), strict=True))


def run_job(plan: Plan) -> int:
    """Run the job of all chunks, as spark-submit starts it."""
    chunks = (word for chunk in plan.chunks for word in ("--chunk", chunk.chunk_id))
    return replay.main(["--plan", str(plan.folder.plan), *chunks])


def stage(kind: str, folder: Path) -> Staged:
    """Return a run with one kind of window whose chunks are finished."""
    write_definition(folder, kind)
    plans = [plan_of(folder, trigger) for trigger in ("other", "this")]
    assert [run_job(plan) for plan in plans] == [0, 0]
    copies: list[dict[str, Path]] = []
    for number, plan in enumerate(plans):
        before = Staged(plan, load_manifests(plan), {}, {})
        copies.append({suffix: folder / f"{number}-{NAMES[suffix]}.parquet" for suffix in NAMES})
        for suffix, path in copies[-1].items():
            rows = pq.ParquetFile(before.largest(suffix).path).read()
            # The order of rows in a file is not defined, so another attempt may write another order.
            pq.write_table(rows.take(list(range(rows.num_rows))[::-1]), path)
    for chunk in plans[1].chunks:
        plans[1].folder.manifest(chunk.chunk_id).unlink()
    assert run_job(plans[1]) == 0
    assert [find_phase(plan.folder) for plan in plans] == [Phase.REPLAY] * 2
    return Staged(plans[1], load_manifests(plans[1]), *copies)


@pytest.fixture(scope="module")
def staged_runs() -> dict[str, Staged]:
    """The runs that tests have staged, by their kind of window."""
    return {}


@pytest.fixture(params=KINDS)
def staged(
    request: pytest.FixtureRequest, staged_runs: dict[str, Staged], tmp_path_factory: pytest.TempPathFactory
) -> Staged:
    """Return a run with one kind of window, which is staged once for all tests, in whatever order they are run."""
    if request.param not in staged_runs:
        staged_runs[request.param] = stage(request.param, tmp_path_factory.mktemp("chain"))
    return staged_runs[request.param]


@pytest.fixture
def broken(staged: Staged) -> Iterator[Staged]:
    """Restore the files of the run after each test."""
    files = [Path(file.path) for each in staged.manifests for table in each.files.values() for file in table]
    files += [staged.plan.folder.manifest(chunk.chunk_id) for chunk in staged.plan.chunks]
    content = {path: path.read_bytes() for path in files}
    yield staged
    for path, before in content.items():
        path.write_bytes(before)


def refusal(plan: Plan) -> str:
    """Return the error of a publication, and check that no row is published."""
    with pytest.raises(BackstreamError) as caught:
        publish(plan)
    assert not plan.folder.publication.exists()
    assert rows_published(plan) == 0
    return str(caught.value)


@pytest.mark.parametrize(
    ("staged", "change", "suffix"), [tuple(case) for case in AllPairs([KINDS, AFTER, NAMES])], indirect=["staged"]
)
def test_a_file_that_is_not_what_the_job_wrote_is_not_published(broken: Staged, change: str, suffix: str) -> None:
    AFTER[change](broken, suffix)

    error = refusal(broken.plan)

    assert error.startswith(STAGED.format(f"__{suffix}" if suffix else ""))
    assert re.search(SENTENCES[change], error), error


def test_the_gate_detects_a_changed_fate_in_a_manifest(broken: Staged) -> None:
    flip_a_fate(broken)

    if broken.plan.definition["window"]["kind"] == "sliding":
        # A record of three windows has one fate in the manifest, so only the total can be compared.
        pytest.skip("a sliding window's fates are not those of its records")
    assert 'failed the check "every record with a fate is in its window"' in refusal(broken.plan)


def test_a_manifest_that_is_changed_is_not_read(broken: Staged) -> None:
    file = broken.plan.folder.manifest(broken.plan.chunks[0].chunk_id)
    file.write_text(re.sub(r'"on_time": (\d+)', r'"on_time": 1\1', file.read_text(), count=1))

    assert refusal(broken.plan) == f"the manifest of chunk 0000 was changed after it was written\n  {file}"


def test_a_run_without_a_fault_is_published(broken: Staged) -> None:
    # This must be the last test of this run, because the others require an empty table.
    publish(broken.plan)

    rows = sum(file.rows for manifest in broken.manifests for file in manifest.files[""])
    assert rows_published(broken.plan) == rows
    check = next(
        each for each in Audit.read(broken.plan.folder.audit_result).checks if each.expectation == "verify"
    )
    assert (check.outcome, check.observed) == (CheckOutcome.PASS, f"{rows:,} rows are equal")
    receipt = Receipt.find(broken.plan.folder.verification)
    assert receipt is not None
    assert (receipt.verified, receipt.rows, receipt.findings) == (rows, rows, ())


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder with a history and a definition; by default, for each kind of window."""
    write_definition(tmp_path, request.param)
    return tmp_path


JOB_ERRORS = {
    "a file on a disk that the driver does not see": r"rows of table `events` that executors wrote on .* driver",
    "a task whose second attempt writes too": r"task \d+ wrote [\d,]+ rows of table `events`, but its files",
    "a file that is cut short when it is written": "a file that was just written cannot be read",
}


@pytest.mark.parametrize(("folder", "change"), list(zip(KINDS, cycle(WITHIN), strict=False)), indirect=["folder"])
def test_the_job_fails_if_the_driver_does_not_find_the_files_of_its_tasks(
    folder: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(folder, "test")
    with broken_write("", WITHIN[change]):
        status = run_job(plan)

    log = capsys.readouterr().err
    assert status == 1
    assert re.search(JOB_ERRORS[change], log), log
    assert load_manifests(plan) == []
    assert "chunks left no manifest" in refusal(plan) or "left no manifest" in refusal(plan)

    assert run_job(plan) == 0
    publish(plan)
    assert rows_published(plan) > 0


LOST = {
    "": "the rows staged for table|would get [\\d,]+ rows of [\\d,]+ records",
    "panes": r"the rows staged for table `events__panes` are made of [\d,]+ records, its windows hold [\d,]+",
}


LOST_ROWS = [
    ("tumbling", "", Mode.RECOMPUTE),
    ("tumbling", "panes", Mode.REPLAY),
    ("sliding", "", Mode.REPLAY),
    ("session", "", Mode.RECOMPUTE),
    ("session", "panes", Mode.REPLAY),
    ("cumulate", "", Mode.REPLAY),
]


@pytest.mark.parametrize(("folder", "suffix", "mode"), LOST_ROWS, indirect=["folder"])
def test_a_row_that_the_job_loses_fails_the_job(
    folder: Path, suffix: str, mode: Mode, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(folder, "test", mode)
    with lost_row(suffix):
        status = run_job(plan)

    log = capsys.readouterr().err
    assert status == 1
    assert re.search(LOST[suffix], log), log
    assert load_manifests(plan) == []


def test_the_gate_detects_a_lost_row_of_the_metrics(folder: Path) -> None:
    plan = plan_of(folder, "test")
    with lost_row("metrics"):
        assert run_job(plan) == 0

    assert re.search(
        'failed the check "(every record with a fate is in its window|the rows of every)', refusal(plan)
    )


def test_the_gate_detects_a_changed_fate_in_the_job(folder: Path) -> None:
    plan = plan_of(folder, "test")
    if plan.definition["window"]["kind"] in ("session", "sliding"):
        pytest.skip(
            "a record is in several firings of a session, or in several windows: see docs/chain-of-counts.md"
        )
    with flipped_fate():
        assert run_job(plan) == 0

    assert "the panes of every window contain their records" in refusal(plan)


def test_an_input_file_that_is_replaced_between_plan_and_run_fails_the_job(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(folder, "test")
    first, second = sorted((folder / "data").rglob("*.parquet"))[:2]
    shutil.copyfile(second, first)

    assert run_job(plan) == 3
    assert "1 input file of 2 cannot be read as planned" in capsys.readouterr().err
