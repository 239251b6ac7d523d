"""Suites of expectations, read strictly: what Great Expectations skips with a log line is an error here.

A suite is a file `expectations/<name>.json` in Great Expectations' own schema. Beyond that schema, every
entry must say in a `description` what it asks for (the check's name for people, unique in its suite) and how
much a miss weighs in a `severity`. `meta.frame` names the table that is asked: `windows` (one row per source
partition and window; the default), `partitions` (one row per source partition), `run` (one row) or `results` (one
row per window start). A suite's own `meta.includes` names other suites whose expectations come before its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from backstream.definition.model import Definition
from backstream.errors import SpecError, StorageError, format_problems
from backstream.quality.audit_frame import PARTITION_COLUMNS, RUN_COLUMNS, WINDOW_COLUMNS
from backstream.quality.known_suites import SOUND
from backstream.quality.results_frame import RESULT_COLUMNS
from backstream.runs.home import expectations_folder, write_text
from backstream.runs.results import Severity

FRAMES = {
    "windows": WINDOW_COLUMNS,
    "partitions": PARTITION_COLUMNS,
    "run": RUN_COLUMNS,
    "results": RESULT_COLUMNS,
}
"""The tables a check may ask, and their columns."""

_SUITE_KEYS = {"name", "expectations", "meta", "notes", "suite_parameters"}
_ENTRY_KEYS = {"type", "kwargs", "description", "severity", "meta", "notes"}
_COLUMN_KEYS = ("column", "column_A", "column_B", "column_list")
_MARK = "$PARAMETER"


@dataclass(frozen=True, slots=True)
class SuiteEntry:
    """One expectation of a suite: which type, about which frame, with which arguments."""

    position: int
    type: str
    description: str
    severity: Severity
    frame: str
    kwargs: Mapping[str, Any]

    def with_parameters(self, parameters: Mapping[str, float]) -> dict[str, Any]:
        """The arguments with the run's parameters filled in."""
        return {
            key: parameters[value[_MARK]] if _is_parameter(value) else value for key, value in self.kwargs.items()
        }


@dataclass(frozen=True, slots=True)
class Suite:
    """The checks of a run, in the order of their file."""

    name: str
    entries: tuple[SuiteEntry, ...]


def suite_parameters(definition: Definition) -> dict[str, float]:
    """What a suite may name as `{"$PARAMETER": ..}`: the limits of a definition, shares between 0 and 1."""
    quality = definition.quality
    late, dropped, missing = quality.late_ratio, quality.dropped_ratio, quality.missing_ratio
    return {
        "late_ratio_warn": late.warn,
        "late_ratio_fail": late.fail,
        "dropped_ratio_warn": dropped.warn,
        "dropped_ratio_fail": dropped.fail,
        "missing_ratio_warn": missing.warn,
        "missing_ratio_fail": missing.fail,
        "present_ratio_warn": _complement(missing.warn),
        "present_ratio_fail": _complement(missing.fail),
        "quarantined_ratio_warn": quality.quarantined_ratio.warn,
        "quarantined_ratio_fail": quality.quarantined_ratio.fail,
        "duplicate_ratio_warn": quality.duplicate_ratio.warn,
        "duplicate_ratio_fail": quality.duplicate_ratio.fail,
        "rows_ratio_fail": quality.rows_ratio,
    }


PARAMETER_NAMES = (
    "late_ratio_warn",
    "late_ratio_fail",
    "dropped_ratio_warn",
    "dropped_ratio_fail",
    "missing_ratio_warn",
    "missing_ratio_fail",
    "present_ratio_warn",
    "present_ratio_fail",
    "quarantined_ratio_warn",
    "quarantined_ratio_fail",
    "duplicate_ratio_warn",
    "duplicate_ratio_fail",
    "rows_ratio_fail",
)


def list_suites(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the suites there are, sorted."""
    return tuple(sorted(path.stem for path in (folder or expectations_folder()).glob("*.json")))


def load_suite(name: str, folder: Path | None = None, *, is_asked: bool = True) -> Suite:
    """The suite of a name with those that it includes, every entry checked.

    Args:
        name: of the suite.
        folder: where suites are looked for; by default where the installation keeps them.
        is_asked: whether Great Expectations is asked too, which takes seconds to import.

    Raises:
        SpecError: when there is no such suite, it holds nothing, or an entry is wrong: each finding with
            the position of its entry (from 1) and its type, the value, and the file.
    """
    folder = folder or expectations_folder()
    entries = tuple(_entries(name, folder, (), is_asked=is_asked))
    where = str(folder / f"{name}.json")
    if not entries:
        msg = f"suite must hold at least one expectation, got none ({where})"
        raise SpecError(msg)
    if findings := _repeated([entry.description for entry in entries]):
        raise SpecError(format_problems("problems", findings, where))
    return Suite(name, tuple(replace(entry, position=at) for at, entry in enumerate(entries, 1)))


def require_valid_suite(name: str, remembered: Path, folder: Path | None = None) -> None:
    """Check a suite with those that it includes; Great Expectations is asked once for each content of their files.

    It takes seconds to import, and a plan needs nothing else of it. It is not asked about the suites that come
    with this version: it was, when they were written.

    Args:
        name: of the suite.
        remembered: a folder with an empty file for each content that it had nothing against.
        folder: where suites are looked for; by default where the installation keeps them.

    Raises:
        SpecError: as `load_suite` does.
    """
    folder = folder or expectations_folder()
    digest = suite_digest(name, folder)
    sound = remembered / digest
    is_known = digest in SOUND.values() or sound.exists()
    load_suite(name, folder, is_asked=not is_known)
    if not is_known:
        with suppress(StorageError):  # then it is asked again, and whoever must write says what is wrong
            write_text(sound, "")


def suite_digest(name: str, folder: Path) -> str:
    """Return a digest of what Great Expectations is asked about a suite, and of its version.

    Raises:
        SpecError: when a file of the suite is not there, or is no suite.
    """
    digest = hashlib.sha256(version("great-expectations").encode())
    for each in _with_included(name, folder, set()):
        digest.update(each.encode() + b"\0" + (folder / f"{each}.json").read_bytes())
    return digest.hexdigest()[:32]


def _with_included(name: str, folder: Path, seen: set[str]) -> list[str]:
    """The names of a suite and of those that it includes, each once."""
    if name in seen:
        return []
    seen.add(name)
    included = _content(folder / f"{name}.json", name).get("meta", {}).get("includes", ())
    return [name, *(each for one in included for each in _with_included(one, folder, seen))]


def _entries(name: str, folder: Path, including: tuple[str, ...], *, is_asked: bool) -> Iterator[SuiteEntry]:
    """The entries of the suites that a suite includes, then its own."""
    path = folder / f"{name}.json"
    if name in including:
        msg = f"suites include each other: {' includes '.join((*including, name))} ({path})"
        raise SpecError(msg)
    content = _content(path, name)
    findings = [
        f"expectation {position}{_type_of(entry)}: {finding}"
        for position, entry in enumerate(content["expectations"], 1)
        for finding in _findings(entry, is_asked=is_asked)
    ]
    if findings:
        raise SpecError(format_problems("problems", findings, str(path)))
    for included in content.get("meta", {}).get("includes", ()):
        yield from _entries(included, folder, (*including, name), is_asked=is_asked)
    yield from (_entry(position, entry) for position, entry in enumerate(content["expectations"], 1))


def _type_of(entry: Any) -> str:
    named = entry.get("type") if isinstance(entry, dict) else None
    return f" ({named})" if isinstance(named, str) else ""


def _content(path: Path, name: str) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = ", ".join(list_suites(path.parent)) or "none"
        msg = f"no suite {name!r} in {path.parent}, which has: {known}"
        raise SpecError(msg) from None
    except ValueError as error:
        msg = f"suite is not JSON: {error} ({path})"
        raise SpecError(msg) from error
    wrong = _wrong_suite(content, name)
    if wrong:
        msg = f"{wrong} ({path})"
        raise SpecError(msg)
    return dict(content)


def _wrong_suite(content: Any, name: str) -> str | None:
    """What is wrong with the suite as a whole."""
    if not isinstance(content, dict):
        return f"suite must be a JSON object, got {type(content).__name__}"
    unknown = sorted(set(content) - _SUITE_KEYS)
    if unknown:
        return f"suite has an unknown key {unknown[0]!r}, got {content[unknown[0]]!r}"
    if content.get("name") != name:
        return f"suite must have the name of its file, got {content.get('name')!r}"
    if not isinstance(content.get("expectations"), list):
        return f"expectations must be a list, got {content.get('expectations')!r}"
    meta = content.get("meta") or {}
    includes = meta.get("includes", []) if isinstance(meta, dict) else meta
    if not isinstance(includes, list) or not all(isinstance(each, str) for each in includes):
        return f"meta.includes must be a list of names of suites, got {includes!r}"
    return None


def _findings(entry: Any, *, is_asked: bool) -> list[str]:
    """What is wrong with one entry; its arguments are looked at only if the rest is sound."""
    if not isinstance(entry, dict):
        return [f"must be a JSON object, got {type(entry).__name__}"]
    found = [f"{key!r} is not a known key, got {entry[key]!r}" for key in sorted(set(entry) - _ENTRY_KEYS)]
    if not isinstance(entry.get("description"), str) or not entry["description"].strip():
        found.append(f"description must say what is asked for, got {entry.get('description')!r}")
    if entry.get("severity") not in list(Severity):
        found.append(f"severity must be critical, warning or info, got {entry.get('severity')!r}")
    frame = _frame(entry)
    if frame not in FRAMES:
        found.append(f"meta.frame must be windows, partitions, run or results, got {frame!r}")
    if not isinstance(entry.get("kwargs"), dict):
        found.append(f"kwargs must be a JSON object, got {entry.get('kwargs')!r}")
    return found or [*_wrong_arguments(entry["kwargs"], frame), *(_refused(entry) if is_asked else [])]


def _wrong_arguments(kwargs: Mapping[str, Any], frame: str) -> list[str]:
    """Columns that the frame does not have, and parameters that no definition gives."""
    found = []
    for key, value in kwargs.items():
        if _is_parameter(value):
            if value[_MARK] not in PARAMETER_NAMES:
                found.append(f"{key} names an unknown parameter {value[_MARK]!r}")
        elif _MARK in json.dumps(value):
            found.append(f"{key} must be a parameter as a whole, got {json.dumps(value)}")
        elif key in _COLUMN_KEYS:
            named = value if isinstance(value, list) else [value]
            found += [
                f"{key}: frame {frame} has no column {name!r}" for name in named if name not in FRAMES[frame]
            ]
    return found


def _refused(entry: Mapping[str, Any]) -> list[str]:
    """What Great Expectations itself has against the entry."""
    from backstream.quality.gx_adapter import reason_not_buildable

    reason = reason_not_buildable(str(entry.get("type")), entry["kwargs"])
    return [reason] if reason else []


def _repeated(descriptions: Sequence[str]) -> list[str]:
    twice = sorted({text for text in descriptions if descriptions.count(text) > 1})
    return [f"description must be unique in its suite, got {text!r} more than once" for text in twice]


def _entry(position: int, entry: Mapping[str, Any]) -> SuiteEntry:
    return SuiteEntry(
        position=position,
        type=entry["type"],
        description=entry["description"],
        severity=Severity(entry["severity"]),
        frame=_frame(entry),
        kwargs=entry["kwargs"],
    )


def _frame(entry: Mapping[str, Any]) -> Any:
    meta = entry.get("meta", {})
    return meta.get("frame", "windows") if isinstance(meta, dict) else meta


def _is_parameter(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {_MARK} and isinstance(value[_MARK], str)


def _complement(share: float) -> float:
    """1 - share, a hair below: a share of exactly the limit passes, whatever floating point makes of it."""
    return max(0.0, 1 - share - 1e-9)
