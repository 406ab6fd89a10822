"""Run a command and write its wall seconds and peak memory to a file, from a process that is itself small.

A child starts with the memory mark of whoever forked it, so a benchmark that holds a large array would
report its own size; this script is what stands in between. Imports nothing heavy.
"""

import json
import os
import sys
import time


def main(report: str, command: list[str]) -> int:
    """Run to the end; the exit code is the command's."""
    begin = time.perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - begin
    unit = 1 if sys.platform == "darwin" else 1024
    with open(report, "w") as file:
        json.dump({"seconds": seconds, "peak_mb": usage.ru_maxrss * unit / 1e6}, file)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
