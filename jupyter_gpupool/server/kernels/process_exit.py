"""Tells at once when a process has exited.

The Jupyter server itself looks every three seconds whether its kernels live. A dead kernel's share
is wanted by others sooner, and this does not depend on whether the server restarts the kernel.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

logger = logging.getLogger(__name__)


def when_exited(pid: int, then: Callable[[], None]) -> Callable[[], None]:
    """Calls ``then`` once, from the running event loop, when process ``pid`` has exited.

    The process must not have been waited for yet: its id could belong to another one by now.
    Returns a function that cancels the watch; calling it later does nothing.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        # An old kernel or a sandbox without pidfd: what the server's own look finds must do.
        logger.debug("process %d is not watched: %s", pid, error)
        return lambda: None
    loop = asyncio.get_running_loop()
    watching = True

    def stop() -> None:
        nonlocal watching
        if watching:
            watching = False
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def exited() -> None:
        stop()
        then()

    loop.add_reader(descriptor, exited)
    return stop
