"""Ctrl-C and SIGTERM of commands that have something to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def _interrupted(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Both end the command in order.

    A shell that starts a job in the background makes it ignore SIGINT; these commands always listen.
    """
    before = [(number, signal.signal(number, _interrupted)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def ignored() -> Iterator[None]:
    """A second Ctrl-C does not leave half of it running."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
