from __future__ import annotations

from tests.house.accept import DIGESTS, QUALITY_PAGE, accepted_digests, accepted_page


def test_what_is_accepted_already_stays_as_it_is() -> None:
    digests, page = DIGESTS.read_text(encoding="utf-8"), QUALITY_PAGE.read_text(encoding="utf-8")

    assert accepted_digests(digests) == digests
    assert accepted_page(page) == page


def test_old_digests_numbers_and_faults_are_replaced() -> None:
    digests, page = DIGESTS.read_text(encoding="utf-8"), QUALITY_PAGE.read_text(encoding="utf-8")
    old_digests = digests.replace('    "bands": "', '    "gone": "1",\n    "bands": "1')
    old_page = page.replace("volume: 1 expectation\n", "").replace("| no window at all |", "| no window |")

    assert old_digests != digests
    assert old_page.count("| no window |") == 1
    assert accepted_digests(old_digests) == digests
    assert accepted_page(old_page) == page
