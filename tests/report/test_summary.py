from __future__ import annotations

import json
from dataclasses import replace

from tests.report.example_run import DEFINITION, LATE, MISSING, PASSED, PLAN, PUBLICATION, audit, manifests
from tests.report.test_run_context import CHANGED

from backstream.report.run_context import RunContext
from backstream.report.summary import RunSummary
from backstream.runs.results import Audit, Publication, Verdict


def brief(
    found: Audit | None, publication: Publication | None = None, known: RunContext | None = None
) -> RunSummary:
    return RunSummary(PLAN, DEFINITION, manifests(), found, publication, known or RunContext())


def test_the_summary_has_dataset_range_verdict_finding_and_outcome() -> None:
    assert brief(audit(Verdict.WARN, MISSING), PUBLICATION).sentence == (
        "clicks, 1 Mar 2026 to 4 Mar 2026: warn: 3 of 192 windows have no event; "
        "98,765 rows published, replacing 4,321 rows"
    )


def test_the_summary_of_a_refused_run_gives_the_reason() -> None:
    assert brief(audit(Verdict.FAIL, LATE)).sentence.endswith(
        "; nothing was published: rejected by the quality gate, failed check: late share of windows"
    )


def test_the_summary_of_a_run_without_an_audit_has_no_verdict() -> None:
    assert RunSummary(PLAN, DEFINITION).sentence == (
        "clicks, 1 Mar 2026 to 4 Mar 2026: no verdict; "
        "nothing was published: 2 chunks of 2 did not finish, so the audit did not run"
    )


def test_markdown_has_the_checks_that_did_not_pass_with_their_windows() -> None:
    text = brief(audit(Verdict.FAIL, PASSED, MISSING, LATE), known=RunContext(changes=CHANGED)).markdown()

    assert text.startswith(
        "### ❌ clicks, 1 Mar 2026 to 4 Mar 2026\n\n3 of 192 windows have no event.\n\n**Nothing"
    )
    assert "1 of 3 checks of suite window\\_audit passed." in text
    assert (
        "| ❌ | late share of windows |  | "
        "north 2026-03-01 05:00: expected at most 5 %, found 5 of 20 events (25 %) |"
    ) in text
    assert (
        "| ⚠️ | expected windows have events | 3 of 192 windows do not | "
        "north 2026-03-01 06:00: expected 50 events, found no event; "
        "south 2026-03-02 06:00 to 2026-03-02 08:00, 2 windows: expected 50 events, found no event; ... |"
    ) in text
    assert "counted once" not in text
    assert "| south | 1,887 | 1,880 | 0 | 0 | 7 |" in text
    assert "* clicks: 1,251 rows, largest -30 (2026-03-02 05:00 &lt;i&gt;home)" in text


def test_nothing_from_data_is_markup() -> None:
    hostile = "a|b\n# c [x](http://e) @all *d* <img src=x>"
    text = brief(audit(Verdict.FAIL, replace(LATE, name=hostile, observed=hostile, failing=()))).markdown()

    shown = "a\\|b&lt;U+000A&gt;# c \\[x](http://e) &#64;all \\*d\\* &lt;img src=x&gt;"
    assert f"| ❌ | {shown} | {shown} |  |" in text


def test_json_holds_what_programs_ask_for() -> None:
    told = json.loads(json.dumps(brief(audit(Verdict.WARN, PASSED, MISSING), PUBLICATION).as_json()))

    assert (told["run_id"], told["verdict"], told["since"]) == (PLAN.run_id, "warn", "2026-03-01T00:00Z")
    assert [check["name"] for check in told["checks"]] == [MISSING.name, PASSED.name]
    assert told["checks"][0]["failing"][0] == dict(MISSING.failing[0])
    assert told["published"]["rows"] == 98_765
    assert told["fates"]["south"] == {"on_time": 1_880, "duplicate": 7}
    assert told["report"] is None


def test_json_of_a_run_without_a_verdict_has_no_checks_and_no_changes() -> None:
    told = RunSummary(PLAN, DEFINITION).as_json()

    assert (told["verdict"], told["checks"], told["published"], told["changed"]) == (None, [], None, None)
