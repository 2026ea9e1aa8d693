"""Runs a command that ends with this program's parent: ``python -I -S die_with_parent.py PARENT_PID COMMAND…``.

A program of its own, because only a child can ask for that, and code between fork and exec of a process with threads
may hang. The parent that is named is compared after asking: it may have died before.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Becomes the command."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 (the command is this package's own)


if __name__ == "__main__":
    main()
