"""``python -m rewardloop ARGUMENTS`` runs the program rewardloop.

The program is that of REWARDLOOP_BIN if the variable is set, else of this environment, else the first one on PATH.
"""

import os
import sys

from ._launch import find_binary
from .errors import RewardloopError


def main() -> int:
    try:
        program = find_binary()
    except RewardloopError as err:
        print(f"python -m rewardloop: {err}", file=sys.stderr)
        return 2
    os.execv(program, [program, *sys.argv[1:]])  # noqa: S606 - it takes this process's place
    return 0  # never reached where exec works


if __name__ == "__main__":
    sys.exit(main())
