"""Run a command in a separate process, and print its time and memory: `python -m benchmarks.spent COMMAND ..`.

Until a child begins its own program, its peak of memory includes the memory of its parent. Therefore the parent
must be this small program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence


def main(command: Sequence[str]) -> int:
    """Print wall and processor seconds, and the peak in MB, to stdout. The command prints to stderr."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=sys.stderr)
    _, status, usage = os.wait4(child.pid, 0)
    facts = {"wall_s": time.perf_counter() - begin, "cpu_s": usage.ru_utime + usage.ru_stime}
    print(json.dumps(facts | {"rss_mb": usage.ru_maxrss / 1_024}))
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
