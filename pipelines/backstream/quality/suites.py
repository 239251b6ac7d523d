"""Load suites of expectations strictly: an entry that Great Expectations would skip with a log line is an error.

A suite is a file `expectations/<name>.json` in Great Expectations' own schema. In addition, each entry needs a
`description` (the name of the check, unique in its suite) and a `severity`. `meta.frame` names the checked frame:
`windows` (one row per source partition and window; the default), `partitions` (one row per source partition),
`run` (one row), `results` (one row per window start), or `bands` (one row per window start, with its band). The
`meta.includes` of a suite names other suites, whose expectations come before its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

from backstream.definition.model import Definition
from backstream.definition.run_sections import Quality
from backstream.errors import SpecError, StorageError, format_problems
from backstream.quality.audit_frame import PARTITION_COLUMNS, RUN_COLUMNS, WINDOW_COLUMNS
from backstream.quality.bands import BAND_COLUMNS
from backstream.quality.known_suites import SOUND
from backstream.quality.results_frame import RESULT_COLUMNS
from backstream.runs.home import bundled_folder, expectations_folders
from backstream.runs.results import Severity
from backstream.storage.files import write_text

FRAMES = {
    "windows": WINDOW_COLUMNS,
    "partitions": PARTITION_COLUMNS,
    "run": RUN_COLUMNS,
    "results": RESULT_COLUMNS,
    "bands": BAND_COLUMNS,
}
"""The frames that a check can read, and their columns."""

_SUITE_KEYS = {"name", "expectations", "meta", "notes", "suite_parameters"}
_ENTRY_KEYS = {"type", "kwargs", "description", "severity", "meta", "notes"}
_COLUMN_KEYS = ("column", "column_A", "column_B", "column_list")
_PARAMETER_KEY = "$PARAMETER"


@dataclass(frozen=True, slots=True)
class SuiteEntry:
    """One expectation of a suite, with its type, frame, and arguments."""

    position: int
    type: str
    description: str
    severity: Severity
    frame: str
    kwargs: Mapping[str, Any]

    def with_parameters(self, parameters: Mapping[str, float]) -> dict[str, Any]:
        """Return the arguments with the values of the run's parameters."""
        return {
            key: parameters[value[_PARAMETER_KEY]] if _is_parameter(value) else value
            for key, value in self.kwargs.items()
        }


@dataclass(frozen=True, slots=True)
class Suite:
    """The checks of a run, in the order of their file."""

    name: str
    entries: tuple[SuiteEntry, ...]


PARAMETERS = {
    "late_ratio_warn": "late_ratio.warn",
    "late_ratio_fail": "late_ratio.fail",
    "dropped_ratio_warn": "dropped_ratio.warn",
    "dropped_ratio_fail": "dropped_ratio.fail",
    "missing_ratio_warn": "missing_ratio.warn",
    "missing_ratio_fail": "missing_ratio.fail",
    "present_ratio_warn": "1 - missing_ratio.warn",
    "present_ratio_fail": "1 - missing_ratio.fail",
    "quarantined_ratio_warn": "quarantined_ratio.warn",
    "quarantined_ratio_fail": "quarantined_ratio.fail",
    "inexact_ratio_warn": "inexact_ratio.warn",
    "inexact_ratio_fail": "inexact_ratio.fail",
    "implausible_ratio_warn": "implausible_ratio.warn",
    "implausible_ratio_fail": "implausible_ratio.fail",
    "duplicate_ratio_warn": "duplicate_ratio.warn",
    "duplicate_ratio_fail": "duplicate_ratio.fail",
    "undecided_ratio_warn": "undecided_ratio.warn",
    "undecided_ratio_fail": "undecided_ratio.fail",
    "without_id_ratio_warn": "without_id_ratio.warn",
    "without_id_ratio_fail": "without_id_ratio.fail",
    "rows_ratio_fail": "rows_ratio",
    "usual_ratio": "1 - bands.outside_ratio",
}
"""The keys of `[quality]` behind the parameters of suites. A minimum share (`mostly`) is 1 minus its limit."""
_COMPLEMENT = "1 - "


def suite_parameters(definition: Definition) -> dict[str, float]:
    """Return the limits of a definition, which a suite uses by `{"$PARAMETER": ...}`; ratios between 0 and 1."""
    return {name: _value_of(definition.quality, source) for name, source in PARAMETERS.items()}


def _value_of(quality: Quality, source: str) -> float:
    value: float = attrgetter(source.removeprefix(_COMPLEMENT))(quality)
    # The margin for rounding lets a share pass that equals the limit.
    return max(0.0, 1 - value - 1e-9) if source.startswith(_COMPLEMENT) else value


def list_suites(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of the suites in a folder, by default in all folders of the installation, sorted."""
    folders = (folder,) if folder else expectations_folders()
    return tuple(sorted({path.stem for each in folders for path in each.glob("*.json")}))


def _suite_file(name: str, folder: Path | None = None) -> Path:
    """Return the file of a suite: in the folder, by default in those of the installation, or else bundled.

    Raises:
        SpecError: if there is no such suite.
    """
    folders = (folder, bundled_folder("expectations")) if folder else expectations_folders()
    for each in folders:
        if (each / f"{name}.json").is_file():
            return each / f"{name}.json"
    names = ", ".join(list_suites(folder)) or "none"
    where = folder or " or ".join(map(str, folders))
    msg = f"no suite {name!r} in {where}, which has: {names}"
    raise SpecError(msg)


def load_suite(name: str, folder: Path | None = None, *, is_asked: bool = True) -> Suite:
    """Return a suite with the suites that it includes, after checking every entry.

    Args:
        name: the name of the suite.
        folder: the folder of the suites; None: that of the installation.
        is_asked: whether Great Expectations checks the entries too, which takes seconds to import.

    Raises:
        SpecError: if there is no such suite, it is empty, or an entry is invalid. Each problem has the position of
            its entry (from 1), the type, the value, and the file.
    """
    entries = tuple(_load_entries(name, folder, (), is_asked=is_asked))
    path = str(_suite_file(name, folder))
    if not entries:
        msg = f"suite must hold at least one expectation, got none ({path})"
        raise SpecError(msg)
    if problems := _repeated_descriptions([entry.description for entry in entries]):
        raise SpecError(format_problems("problems", problems, path))
    return Suite(name, tuple(replace(entry, position=number) for number, entry in enumerate(entries, 1)))


def require_valid_suite(name: str, remembered: Path, folder: Path | None = None) -> None:
    """Check a suite with the suites that it includes; Great Expectations checks each content of the files once.

    The library takes seconds to import, and planning needs it for nothing else. It does not check the bundled
    suites again, because a test has checked them.

    Args:
        name: the name of the suite.
        remembered: a folder with an empty file for each content that the library accepted.
        folder: the folder of the suites; None: that of the installation.

    Raises:
        SpecError: as `load_suite` does.
    """
    is_known = is_known_suite(name, remembered, folder)
    load_suite(name, folder, is_asked=not is_known)
    if not is_known:
        with suppress(StorageError):  # the next plan checks the suite again; later writes report the storage error
            write_text(remembered / suite_digest(name, folder), "")


def is_known_suite(name: str, remembered: Path, folder: Path | None = None) -> bool:
    """Return whether Great Expectations has accepted this content of a suite before; see `require_valid_suite`.

    Raises:
        SpecError: if a file of the suite is missing or invalid.
    """
    digest = suite_digest(name, folder)
    return digest in SOUND.values() or (remembered / digest).exists()


def suite_digest(name: str, folder: Path | None) -> str:
    """Return a digest of the files of a suite and of the version of Great Expectations.

    Raises:
        SpecError: if a file of the suite is missing or invalid.
    """
    digest = hashlib.sha256(version("great-expectations").encode())
    for suite in _list_included(name, folder, set()):
        digest.update(suite.encode() + b"\0" + _suite_file(suite, folder).read_bytes())
    return digest.hexdigest()[:32]


def hash_expectations(quality: Quality) -> str:
    """Return a hash of all that a verdict rests on beside the results: the files of the suite, and the limits.

    Raises:
        SpecError: if a file of the suite is missing or invalid.
    """
    content = f"{suite_digest(quality.suite, None)} {quality!r}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _list_included(name: str, folder: Path | None, seen: set[str]) -> list[str]:
    """Return the name of a suite and of those that it includes, each once."""
    if name in seen:
        return []
    seen.add(name)
    included = _load_content(_suite_file(name, folder), name).get("meta", {}).get("includes", ())
    return [name, *(suite for child in included for suite in _list_included(child, folder, seen))]


def _load_entries(
    name: str, folder: Path | None, including: tuple[str, ...], *, is_asked: bool
) -> Iterator[SuiteEntry]:
    """Yield the entries of the included suites, then those of the suite itself."""
    path = _suite_file(name, folder)
    if name in including:
        msg = f"suites include each other: {' includes '.join((*including, name))} ({path})"
        raise SpecError(msg)
    content = _load_content(path, name)
    problems = [
        f"expectation {position}{_type_text(entry)}: {problem}"
        for position, entry in enumerate(content["expectations"], 1)
        for problem in _entry_problems(entry, is_asked=is_asked)
    ]
    if problems:
        raise SpecError(format_problems("problems", problems, str(path)))
    for included in content.get("meta", {}).get("includes", ()):
        yield from _load_entries(included, folder, (*including, name), is_asked=is_asked)
    yield from (_to_entry(position, entry) for position, entry in enumerate(content["expectations"], 1))


def _type_text(entry: Any) -> str:
    type_name = entry.get("type") if isinstance(entry, dict) else None
    return f" ({type_name})" if isinstance(type_name, str) else ""


def _load_content(path: Path, name: str) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        msg = f"suite is not JSON: {error} ({path})"
        raise SpecError(msg) from error
    problem = _suite_problem(content, name)
    if problem:
        msg = f"{problem} ({path})"
        raise SpecError(msg)
    return dict(content)


def _suite_problem(content: Any, name: str) -> str | None:
    """Return the problem of the suite as a whole; None if it has none."""
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
    if not isinstance(includes, list) or not all(isinstance(item, str) for item in includes):
        return f"meta.includes must be a list of names of suites, got {includes!r}"
    return None


def _entry_problems(entry: Any, *, is_asked: bool) -> list[str]:
    """Return the problems of one entry; its arguments are checked only if the rest is valid."""
    if not isinstance(entry, dict):
        return [f"must be a JSON object, got {type(entry).__name__}"]
    problems = [f"{key!r} is not a known key, got {entry[key]!r}" for key in sorted(set(entry) - _ENTRY_KEYS)]
    if not isinstance(entry.get("description"), str) or not entry["description"].strip():
        problems.append(f"description must be a text that is not empty, got {entry.get('description')!r}")
    if entry.get("severity") not in list(Severity):
        problems.append(f"severity must be critical, warning or info, got {entry.get('severity')!r}")
    frame = _frame_of(entry)
    if frame not in FRAMES:
        problems.append(f"meta.frame must be windows, partitions, run, results or bands, got {frame!r}")
    if not isinstance(entry.get("kwargs"), dict):
        problems.append(f"kwargs must be a JSON object, got {entry.get('kwargs')!r}")
    return problems or [
        *_argument_problems(entry["kwargs"], frame),
        *(_library_problems(entry) if is_asked else []),
    ]


def _argument_problems(kwargs: Mapping[str, Any], frame: str) -> list[str]:
    """Return columns that the frame lacks, and unknown parameters."""
    problems = []
    for key, value in kwargs.items():
        if _is_parameter(value):
            if value[_PARAMETER_KEY] not in PARAMETERS:
                problems.append(f"{key} has an unknown parameter {value[_PARAMETER_KEY]!r}")
        elif _PARAMETER_KEY in json.dumps(value):
            problems.append(f"{key} must be a parameter as a whole, got {json.dumps(value)}")
        elif key in _COLUMN_KEYS:
            names = value if isinstance(value, list) else [value]
            problems += [
                f"{key}: frame {frame} has no column {name!r}" for name in names if name not in FRAMES[frame]
            ]
    return problems


def _library_problems(entry: Mapping[str, Any]) -> list[str]:
    """Return the problem of an entry by Great Expectations; none if it can be built."""
    from backstream.quality.gx_adapter import reason_not_buildable

    reason = reason_not_buildable(str(entry.get("type")), entry["kwargs"])
    return [reason] if reason else []


def _repeated_descriptions(descriptions: Sequence[str]) -> list[str]:
    repeated = sorted({text for text in descriptions if descriptions.count(text) > 1})
    return [f"description must be unique in its suite, got {text!r} more than once" for text in repeated]


def _to_entry(position: int, entry: Mapping[str, Any]) -> SuiteEntry:
    return SuiteEntry(
        position=position,
        type=entry["type"],
        description=entry["description"],
        severity=Severity(entry["severity"]),
        frame=_frame_of(entry),
        kwargs=entry["kwargs"],
    )


def _frame_of(entry: Mapping[str, Any]) -> Any:
    meta = entry.get("meta", {})
    return meta.get("frame", "windows") if isinstance(meta, dict) else meta


def _is_parameter(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {_PARAMETER_KEY} and isinstance(value[_PARAMETER_KEY], str)
