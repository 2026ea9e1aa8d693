"""Interrupts of the user (SIGINT) while the kernel's main thread waits."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


def in_main_thread() -> bool:
    """Whether interrupts reach this thread: Python handles signals in the main one only."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Makes an interrupt end a blocking wait at once, also in a cell with top-level ``await``.

    For such cells ipykernel replaces the handler of SIGINT by one that cancels the coroutine
    at its next ``await``: while we block, that never comes.
    """
    if not in_main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
