"""How long tests wait for what must come.

What a test names is what a machine needs that does nothing else. A busy one needs several times as long; waiting
longer costs nothing but where a test fails.
"""

from __future__ import annotations

import time

import pytest

#: How many times as long as it is named a wait may take.
BUSY = 5.0
#: A machine is quiet on which a thread that computes gets so much of a processor.
QUIET = 0.75


def until_late(seconds: float) -> float:
    """The moment of the monotonic clock at which to give up what takes ``seconds`` on a quiet machine."""
    return time.monotonic() + seconds * BUSY


def measured(holds: bool, figures: object) -> None:
    """Asserts what was measured. Skips where it does not hold and the machine is too busy for anybody to measure."""
    __tracebackhide__ = True
    if holds:
        return
    part = _processor_part(0.5)
    if part < QUIET:
        pytest.skip(f"nothing to measure with: a thread gets {part:.0%} of a processor; measured: {figures}")
    raise AssertionError(figures)


def _processor_part(seconds: float) -> float:
    """Which part of a processor a thread gets that computes for so long."""
    began, used = time.monotonic(), time.thread_time()
    while time.monotonic() - began < seconds:
        pass
    return (time.thread_time() - used) / (time.monotonic() - began)
