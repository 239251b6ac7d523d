"""Run a command as a process of its own, and print what it took: `python -m benchmarks.spent COMMAND ..`.

A child counts what its parent holds into its peak of memory until it begins its own program, so that the parent
must be this small one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence


def main(command: Sequence[str]) -> int:
    """Print wall and processor seconds and the peak in MB on standard output; the command's output is on error."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=sys.stderr)
    _, status, used = os.wait4(child.pid, 0)
    spent = {"wall_s": time.perf_counter() - begin, "cpu_s": used.ru_utime + used.ru_stime}
    print(json.dumps(spent | {"rss_mb": used.ru_maxrss / 1_024}))
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
