"""Choose the heap of the driver's Java from settings, a variable, or the memory of the machine."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from backstream.errors import SpecError
from backstream.installed_spark import spark_home
from backstream.storage.machine import machine_memory_bytes
from backstream.variables import HEAP_VARIABLE

SETTING = "spark.driver.memory"
CONF_VARIABLE = "SPARK_CONF_DIR"
"""The folder of Spark's settings."""
SETTINGS_FILE = "spark-defaults.conf"
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_OWN_VARIABLE = "SPARK_DRIVER_MEMORY"
"""The heap of Spark's Java. Settings of Spark override it."""
OUT_OF_MEMORY_STATUS = 52
"""The exit status of Spark's Java, and of `spark-submit`, if Java runs out of memory."""
_DEFAULT = re.compile(r"([^#\s=:][^\s=:]*)\s*[\s=:]\s*(.*)")
"""A line of `spark-defaults.conf`: a name and a value."""
_MB = 2**20
_MIN_MB, _MAX_MB = 1_024, 31 * 1_024
_MIN_CONFIGURED_MB = 512
"""Spark doesn't start with less."""
_UNITS_MB = {"": 1 / _MB, "k": 1 / 1024, "m": 1, "g": 1_024, "t": 1_024**2}


@dataclass(frozen=True, slots=True)
class Heap:
    """The heap of a session: `size` in Java's notation, or None if Spark reads it from `by`, or uses 1 GB.

    `description` is the size and its source as text for users; `by` is the setting that they change.
    """

    size: str | None
    description: str
    by: str

    @property
    def settings(self) -> dict[str, str]:
        """The settings to add to the session."""
        return {} if self.size is None else {SETTING: self.size}


def driver_heap() -> Heap:
    """Return the heap for a session inside this process.

    Spark's own settings come first, then the variable, then half of the memory. Half of the memory is limited to 1
    GB to 31 GB, since Java's pointers need twice the space in a larger heap.

    Raises:
        SpecError: when the value of the variable isn't an amount of memory.
    """
    if setting := _find_spark_setting():
        return Heap(None, f"set by {setting}", setting)
    if size := os.environ.get(HEAP_VARIABLE):
        return Heap(_parse_size(size), f"{size}, set by {HEAP_VARIABLE}", HEAP_VARIABLE)
    memory_mb = machine_memory_bytes() // _MB
    heap_mb = min(max(memory_mb // 2, _MIN_MB), _MAX_MB)
    text = f"{heap_mb:,} MB of this machine's {memory_mb:,} MB; set {HEAP_VARIABLE} to change it"
    return Heap(f"{heap_mb}m", text, HEAP_VARIABLE)


def _parse_size(text: str) -> str:
    """Return an amount in Java's notation that Spark can start with."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if match is None:
        msg = f'{HEAP_VARIABLE} must be an amount of memory, e.g., "8g" or "6000m", got {text!r}'
        raise SpecError(msg)
    size = match[1] + match[2]
    if heap_mb(size) < _MIN_CONFIGURED_MB:
        msg = f"{HEAP_VARIABLE} must be at least {_MIN_CONFIGURED_MB}m, the minimum of Spark, got {text!r}"
        raise SpecError(msg)
    return size


def heap_mb(size: str) -> float:
    """Return the MB of an amount in Java's notation, e.g., `6g`."""
    return int(size.rstrip("kmgt")) * _UNITS_MB[size.lstrip("0123456789")]


def _find_spark_setting() -> str | None:
    """Return the setting of Spark's documentation that sets the heap; None if there is none."""
    arguments = os.environ.get(SUBMIT_ARGUMENTS, "")
    if SETTING in arguments or "--driver-memory" in arguments:
        return f"{SETTING} in {SUBMIT_ARGUMENTS}"
    defaults = conf_folder() / SETTINGS_FILE
    if defaults.is_file() and re.search(rf"^\s*{re.escape(SETTING)}[\s=:]", defaults.read_text(), re.MULTILINE):
        return f"{SETTING} in {defaults}"
    return _OWN_VARIABLE if os.environ.get(_OWN_VARIABLE) else None


def load_defaults() -> dict[str, str]:
    """Return the settings in `spark-defaults.conf`; empty without such a file."""
    file = conf_folder() / SETTINGS_FILE
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    matches = (_DEFAULT.fullmatch(line.strip()) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def conf_folder() -> Path:
    """Return the folder of Spark's settings, without importing Spark."""
    configured = os.environ.get(CONF_VARIABLE)
    return Path(configured) if configured else spark_home() / "conf"
