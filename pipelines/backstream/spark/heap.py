"""The heap of the driver's Java: how much of this machine's memory it gets where nobody has said."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from backstream.errors import SpecError

HEAP_VARIABLE = "BACKSTREAM_DRIVER_MEMORY"
"""The heap of Spark's Java, e.g., `8g`; by default a share of the memory of this machine."""
SETTING = "spark.driver.memory"
CONF_VARIABLE = "SPARK_CONF_DIR"
"""The folder of Spark's settings."""
SETTINGS_FILE = "spark-defaults.conf"
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_OWN_VARIABLE = "SPARK_DRIVER_MEMORY"
"""The heap of Spark's Java. Settings of Spark override it."""
CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where Linux says how much memory a container has, in versions 2 and 1; `max` or a huge number: no limit."""
OUT_OF_MEMORY_STATUS = 52
"""With which Spark ends its Java when that has no memory left; `spark-submit` ends so too."""
_MB = 2**20
_LEAST_MB, _MOST_MB = 1_024, 31 * 1_024
_LEAST_TOLD_MB = 512
"""With less Spark refuses to start."""
_UNITS_MB = {"": 1 / _MB, "k": 1 / 1024, "m": 1, "g": 1_024, "t": 1_024**2}


@dataclass(frozen=True, slots=True)
class Heap:
    """The heap of a session: `size` as Java knows it; None: Spark itself finds what `by` says, or has 1 GB.

    `said` tells people how much it is, and why; `by` is what they change to have another.
    """

    size: str | None
    said: str
    by: str

    @property
    def settings(self) -> dict[str, str]:
        """What is added to the settings of the session."""
        return {} if self.size is None else {SETTING: self.size}


def driver_heap() -> Heap:
    """The heap for a session inside this process: what Spark was told, else the variable, else half of the memory.

    That half is at least 1 GB, and at most 31 GB: beyond that Java's pointers take twice the room.

    Raises:
        SpecError: when the variable does not hold an amount of memory.
    """
    if where := _set_for_spark():
        return Heap(None, f"as {where} sets it", where)
    if asked := os.environ.get(HEAP_VARIABLE):
        return Heap(_sound(asked), f"{asked}, by {HEAP_VARIABLE}", HEAP_VARIABLE)
    memory_mb = machine_memory_bytes() // _MB
    heap_mb = min(max(memory_mb // 2, _LEAST_MB), _MOST_MB)
    said = f"{heap_mb:,} MB of this machine's {memory_mb:,} MB; {HEAP_VARIABLE} sets another"
    return Heap(f"{heap_mb}m", said, HEAP_VARIABLE)


def machine_memory_bytes() -> int:
    """The memory of this machine, or of the container that this process is in."""
    said = [file.read_text().strip() for file in CONTAINER_LIMITS if file.is_file()]
    return min(
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        *(int(limit) for limit in said if limit.isdecimal()),
    )


def _sound(asked: str) -> str:
    """An amount as Java knows it, that Spark starts with."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", asked.strip().lower())
    if found is None:
        msg = f'{HEAP_VARIABLE} must be an amount of memory such as "8g" or "6000m", got {asked!r}'
        raise SpecError(msg)
    if heap_mb(found[1] + found[2]) < _LEAST_TOLD_MB:
        msg = f"{HEAP_VARIABLE} must be at least {_LEAST_TOLD_MB}m, with which Spark can start, got {asked!r}"
        raise SpecError(msg)
    return found[1] + found[2]


def heap_mb(size: str) -> float:
    """An amount of memory as Java knows it, such as `6g`, in MB."""
    return int(size.rstrip("kmgt")) * _UNITS_MB[size.lstrip("0123456789")]


def _set_for_spark() -> str | None:
    """Where somebody has set the heap as Spark's documentation says; None: nowhere."""
    arguments = os.environ.get(SUBMIT_ARGUMENTS, "")
    if SETTING in arguments or "--driver-memory" in arguments:
        return f"{SETTING} in {SUBMIT_ARGUMENTS}"
    defaults = conf_folder() / SETTINGS_FILE
    if defaults.is_file() and re.search(rf"^\s*{re.escape(SETTING)}[\s=:]", defaults.read_text(), re.MULTILINE):
        return f"{SETTING} in {defaults}"
    return _OWN_VARIABLE if os.environ.get(_OWN_VARIABLE) else None


def conf_folder() -> Path:
    """Where Spark looks for its files of settings; it is found without importing it."""
    named = os.environ.get(CONF_VARIABLE)
    return Path(named) if named else spark_home() / "conf"


def spark_home() -> Path:
    """Return the folder of Spark; it is found without importing it."""
    if named := os.environ.get("SPARK_HOME"):
        return Path(named).resolve()
    installed = importlib.util.find_spec("pyspark")
    return Path(installed.origin).parent.resolve() if installed and installed.origin else Path()
