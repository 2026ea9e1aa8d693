"""Interrupts of the user (SIGINT) while the kernel's main thread waits, and after it has waited in vain."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from jupyter_gpupool.kernel.errors import GpuWaitInterrupted


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


def next_interrupt_says(message: str) -> None:
    """The next SIGINT raises :class:`GpuWaitInterrupted` with ``message``; then all is as before.

    For an interrupt that has to be raised again, because who was interrupted could not raise it.
    """
    previous = signal.getsignal(signal.SIGINT)

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        raise GpuWaitInterrupted(message)

    signal.signal(signal.SIGINT, interrupt)
