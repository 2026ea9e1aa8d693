"""The first process of a container can be ended from its first moment on.

The kernel ignores a signal of such a process (pid 1) until it has a handler of its own. A command sets one when it is
ready, seconds after its start: a pod that is deleted in that time would be killed only at the end of its grace.
"""

from __future__ import annotations

import os
import signal
from typing import Any

_FIRST = 1


def _end(number: int, _: Any) -> None:
    # Nothing was begun that must be put away, and modules may be half imported.
    os._exit(128 + number)


# At import, so that it counts before the rest of the program is imported. Other processes keep their handlers.
if os.getpid() == _FIRST:
    for _number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(_number, _end)
