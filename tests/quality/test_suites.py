from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from backstream.definition.loader import parse_definition
from backstream.errors import SpecError
from backstream.quality.known_suites import SOUND
from backstream.quality.suites import (
    list_suites,
    load_suite,
    require_valid_suite,
    suite_digest,
    suite_parameters,
)
from backstream.runs.home import bundled_folder

BETWEEN = "(expect_column_values_to_be_between)"
ENTRY: dict[str, Any] = {
    "type": "expect_column_values_to_be_between",
    "description": "windows are on time",
    "severity": "critical",
    "kwargs": {"column": "late_ratio", "max_value": {"$PARAMETER": "late_ratio_fail"}},
}


def suite_of(folder: Path, *entries: Any, **extra: Any) -> Path:
    content = {"name": "mine", "expectations": list(entries)} | extra
    (folder / "mine.json").write_text(json.dumps(content))
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(SpecError) as raised:
        load_suite("mine", folder)
    return str(raised.value).replace(str(folder), "FOLDER")


def test_every_suite_of_the_checkout_loads_whole() -> None:
    for name in list_suites():
        content = json.loads((bundled_folder("expectations") / f"{name}.json").read_text())

        included = content["meta"].get("includes", ())
        expected = len(content["expectations"]) + sum(len(load_suite(name).entries) for name in included)
        assert len(load_suite(name).entries) == expected > 0


def test_the_suites_of_the_checkout_are_in_the_schema_of_great_expectations() -> None:
    load_suite("window_audit")  # imports the library with its own import warnings off
    from great_expectations import ExpectationSuite

    for name in list_suites():
        content = json.loads((bundled_folder("expectations") / f"{name}.json").read_text())
        assert len(ExpectationSuite(**content).expectations) == len(content["expectations"])


def test_the_default_suite_includes_all_others() -> None:
    content = json.loads((bundled_folder("expectations") / "window_audit.json").read_text())

    assert {*content["meta"]["includes"], "window_audit"} == set(list_suites())


def including(folder: Path, name: str, *included: str) -> None:
    content = {"name": name, "expectations": [], "meta": {"includes": list(included)}}
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_a_suite_has_the_entries_of_those_it_includes_before_its_own(tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text(json.dumps({"name": "base", "expectations": [ENTRY]}))
    own = ENTRY | {"description": "own"}

    suite = load_suite("mine", suite_of(tmp_path, own, meta={"includes": ["base"]}))

    assert [(entry.position, entry.description) for entry in suite.entries] == [
        (1, "windows are on time"),
        (2, "own"),
    ]


def test_suites_that_include_each_other_are_refused(tmp_path: Path) -> None:
    including(tmp_path, "mine", "yours")
    including(tmp_path, "yours", "mine")

    assert refusal(tmp_path) == "suites include each other: mine includes yours includes mine (FOLDER/mine.json)"


def test_a_finding_in_an_included_suite_names_its_file(tmp_path: Path) -> None:
    content = {"name": "base", "expectations": [ENTRY | {"severity": "urgent"}]}
    (tmp_path / "base.json").write_text(json.dumps(content))
    including(tmp_path, "mine", "base")

    assert refusal(tmp_path).endswith("got 'urgent' (FOLDER/base.json)")


def test_names_of_suites_to_include_must_be_a_list(tmp_path: Path) -> None:
    assert refusal(suite_of(tmp_path, ENTRY, meta={"includes": "base"})) == (
        "meta.includes must be a list of names of suites, got 'base' (FOLDER/mine.json)"
    )


def test_a_suite_is_found_by_its_name() -> None:
    assert "window_audit" in list_suites()


def test_a_sound_entry_becomes_a_check_with_its_limits_filled_in(tmp_path: Path) -> None:
    (entry,) = load_suite("mine", suite_of(tmp_path, ENTRY)).entries

    assert (entry.position, entry.frame, entry.severity) == (1, "windows", "critical")
    assert entry.with_parameters({"late_ratio_fail": 0.25}) == {"column": "late_ratio", "max_value": 0.25}


def test_the_parameters_of_a_definition_are_those_that_suites_may_name() -> None:
    definition = parse_definition(
        {
            "name": "clicks",
            "source": {"path": "data", "event_time": "at"},
            "window": {"kind": "tumbling", "size": "1h"},
            "aggregates": {"clicks": "count(*)"},
            "quality": {"missing_ratio": {"warn": 0.1, "fail": 1.0}},
        },
        "test",
    )

    found = suite_parameters(definition)

    assert found["late_ratio_fail"] == definition.quality.late_ratio.fail
    assert found["present_ratio_fail"] == 0.0
    assert 0.9 - 1e-8 < found["present_ratio_warn"] < 0.9


def test_a_suite_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    suite_of(tmp_path, ENTRY)

    with pytest.raises(SpecError) as raised:
        load_suite("yours", tmp_path)

    assert str(raised.value) == f"no suite 'yours' in {tmp_path}, which has: mine"


def test_a_misspelt_type_is_refused(tmp_path: Path) -> None:
    misspelt = ENTRY | {"type": "expect_column_values_to_be_betwen"}

    assert refusal(suite_of(tmp_path, ENTRY | {"description": "first"}, misspelt)) == (
        "expectation 2 (expect_column_values_to_be_betwen): "
        "type 'expect_column_values_to_be_betwen' is not one of Great Expectations'"
        " (FOLDER/mine.json)"
    )


def test_a_bad_severity_is_refused(tmp_path: Path) -> None:
    assert refusal(suite_of(tmp_path, ENTRY | {"severity": "urgent"})) == (
        f"expectation 1 {BETWEEN}: severity must be critical, warning or info, got 'urgent' (FOLDER/mine.json)"
    )


def test_a_missing_description_is_refused(tmp_path: Path) -> None:
    assert refusal(suite_of(tmp_path, {key: ENTRY[key] for key in ENTRY if key != "description"})) == (
        f"expectation 1 {BETWEEN}: description must be a text that is not empty, got None (FOLDER/mine.json)"
    )


def test_a_parameter_that_no_definition_gives_is_refused(tmp_path: Path) -> None:
    kwargs = {"column": "late_ratio", "max_value": {"$PARAMETER": "late_ratio_fail * 2"}}

    assert refusal(suite_of(tmp_path, ENTRY | {"kwargs": kwargs})) == (
        f"expectation 1 {BETWEEN}: max_value has an unknown parameter 'late_ratio_fail * 2' (FOLDER/mine.json)"
    )


def test_a_parameter_inside_an_argument_is_refused(tmp_path: Path) -> None:
    kwargs = {"column": "late_ratio", "value_set": [{"$PARAMETER": "late_ratio_fail"}]}
    nested = ENTRY | {"type": "expect_column_values_to_be_in_set", "kwargs": kwargs}

    assert refusal(suite_of(tmp_path, nested)) == (
        "expectation 1 (expect_column_values_to_be_in_set): "
        'value_set must be a parameter as a whole, got [{"$PARAMETER": "late_ratio_fail"}]'
        " (FOLDER/mine.json)"
    )


def test_a_column_that_the_frame_does_not_have_is_refused(tmp_path: Path) -> None:
    of_the_run = ENTRY | {"meta": {"frame": "run"}, "kwargs": {"column": "copies", "max_value": 1}}

    assert refusal(suite_of(tmp_path, of_the_run)) == (
        f"expectation 1 {BETWEEN}: column: frame run has no column 'copies' (FOLDER/mine.json)"
    )


def test_a_frame_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert refusal(suite_of(tmp_path, ENTRY | {"meta": {"frame": "days"}})) == (
        f"expectation 1 {BETWEEN}: meta.frame must be windows, partitions, run, results or bands, got 'days'"
        " (FOLDER/mine.json)"
    )


def test_an_argument_that_the_expectation_does_not_take_is_refused(tmp_path: Path) -> None:
    kwargs = {"column": "late_ratio", "max_value": 1, "most": 0.9}

    assert refusal(suite_of(tmp_path, ENTRY | {"kwargs": kwargs})) == (
        f"expectation 1 {BETWEEN}: kwargs.most: extra fields not permitted, got 0.9 (FOLDER/mine.json)"
    )


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    wrong = suite_of(tmp_path, ENTRY | {"severity": None, "id": "7"}, "late")

    assert refusal(wrong) == (
        "3 problems in FOLDER/mine.json\n"
        f"  expectation 1 {BETWEEN}: 'id' is not a known key, got '7'\n"
        f"  expectation 1 {BETWEEN}: severity must be critical, warning or info, got None\n"
        "  expectation 2: must be a JSON object, got str"
    )


def test_two_checks_of_one_name_are_refused(tmp_path: Path) -> None:
    assert refusal(suite_of(tmp_path, ENTRY, ENTRY)) == (
        "description must be unique in its suite, got 'windows are on time' more than once (FOLDER/mine.json)"
    )


def test_an_empty_suite_is_refused(tmp_path: Path) -> None:
    assert refusal(suite_of(tmp_path)) == ("suite must hold at least one expectation, got none (FOLDER/mine.json)")


def test_a_suite_under_another_name_than_its_file_is_refused(tmp_path: Path) -> None:
    assert refusal(suite_of(tmp_path, ENTRY, name="yours")) == (
        "suite must have the name of its file, got 'yours' (FOLDER/mine.json)"
    )


def test_a_suite_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    assert refusal(suite_of(tmp_path, ENTRY, expectation=[])) == (
        "suite has an unknown key 'expectation', got [] (FOLDER/mine.json)"
    )


def test_a_suite_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{")

    assert refusal(tmp_path) == (
        "suite is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
        " (FOLDER/mine.json)"
    )


def test_a_suite_that_is_a_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("[]")

    assert refusal(tmp_path) == "suite must be a JSON object, got list (FOLDER/mine.json)"


def test_a_suite_is_looked_at_again_once_one_that_it_includes_has_changed(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    folder.mkdir()
    entry = {
        "type": "expect_column_values_to_be_between",
        "description": "there is a window",
        "severity": "critical",
        "kwargs": {"column": "windows", "min_value": 1},
        "meta": {"frame": "run"},
    }
    inner = folder / "inner.json"
    inner.write_text(json.dumps({"name": "inner", "expectations": [entry]}))
    mine = {"name": "mine", "meta": {"includes": ["inner"]}, "expectations": []}
    (folder / "mine.json").write_text(json.dumps(mine))
    require_valid_suite("mine", tmp_path / "sound", folder)

    inner.write_text(json.dumps({"name": "inner", "expectations": [entry | {"severity": "grave"}]}))

    with pytest.raises(SpecError, match="severity must be critical, warning or info, got 'grave'"):
        require_valid_suite("mine", tmp_path / "sound", folder)


def test_the_digests_of_the_bundled_suites_are_correct() -> None:
    folder = bundled_folder("expectations")
    for name in list_suites(folder):
        load_suite(name, folder)

    assert {name: suite_digest(name, folder) for name in list_suites(folder)} == SOUND


def test_a_changed_bundled_suite_is_checked_again(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    shutil.copytree(bundled_folder("expectations"), folder)
    require_valid_suite("volume", tmp_path / "sound", folder)
    content = json.loads((folder / "volume.json").read_text())
    content["expectations"][0]["type"] = "expect_the_best"
    (folder / "volume.json").write_text(json.dumps(content))

    with pytest.raises(SpecError, match="type 'expect_the_best' is not one of Great Expectations'"):
        require_valid_suite("volume", tmp_path / "sound", folder)
