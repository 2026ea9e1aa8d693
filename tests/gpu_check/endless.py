"""Runs a kernel for so many seconds and waits for it: prints the result of the wait. Arguments: the seconds, and a file that
it writes when the kernel has been launched."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from pathlib import Path

from tests.gpu_check.cuda_by_hand import Cuda


def main() -> int:
    # A shell lets what it starts in the background ignore Ctrl-C, and so all that this starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seconds, launched = float(sys.argv[1]), Path(sys.argv[2])
    cuda = Cuda()
    cuda.spin(seconds)
    launched.touch()
    status = -1
    with contextlib.suppress(KeyboardInterrupt):
        status = cuda.status("cuCtxSynchronize")
    print(json.dumps({"result": status}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
