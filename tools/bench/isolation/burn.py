"""Uses as much of the processors as it is told to, until its standard input ends: burn.py CORES NICENESS.

Each of its processes wants at most an eighth of a core, so that the scheduler can give it its
part on a machine that is busy.
"""

import math
import os
import sys
import time


def burn(share, parent):
    """Keeps the time of this process at its share of the time that has passed."""
    start, used = time.monotonic(), time.process_time()
    while os.getppid() == parent:
        ahead = time.process_time() - used - share * (time.monotonic() - start)
        if ahead > 0:
            time.sleep(min(max(0.001, ahead / share), 0.1))
            continue
        until = time.process_time() + 0.002
        while time.process_time() < until:
            pass


def main():
    """Starts the processes, which end with this one."""
    cores, niceness = float(sys.argv[1]), int(sys.argv[2])
    os.nice(niceness)
    parent, processes = os.getpid(), max(1, math.ceil(8 * cores))
    for _ in range(processes):
        if os.fork() == 0:
            burn(max(cores / processes, 1e-6), parent)
            os._exit(0)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
