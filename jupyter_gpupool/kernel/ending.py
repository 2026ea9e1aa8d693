"""The end of a cell: what it has submitted is waited for, and its user may interrupt that.

The first interrupt says what runs and goes on waiting. The second ends the GPU session: what is in GPU memory is lost, and
the kernel's process with its Python variables lives on.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from gpupool.client.errors import DeviceCallFailedError, GpupoolError
from gpupool.client.runtime import Work

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.interrupts import interruptible

#: One wait for submitted work; while the worker says that it runs, another follows.
DRAIN_SECONDS: Final = 600.0
#: After an interrupt of the cell itself its end is waited for so long before it is said what runs.
QUIET_SECONDS: Final = 3.0
#: Once the session was ended, its wait ends within this, or is given up.
_LAST_SECONDS: Final = 5.0
#: A terminal and a parent process may both pass one key press on.
_ONE_PRESS_SECONDS: Final = 0.2
# cuda.h
_UNAVAILABLE: Final = 46
_NOT_READY: Final = 600


@dataclass(slots=True)
class Ending:
    """How it went.

    Attributes:
        error: CUresult of submitted work that failed; 0: none.
        problem: a sentence about it, or about a wait that was given up; empty: none.
        interrupted: somebody would not wait.
        session_ended: so the GPU session was ended.
        work: what ran then, or still runs.
    """

    error: int = 0
    problem: str = ""
    interrupted: bool = False
    session_ended: bool = False
    work: Work = field(default_factory=Work)


def wait_for_work(*, interrupted: bool = False) -> Ending:
    """Waits until all that was submitted is done. Raises nothing.

    Args:
        interrupted: the cell was; after a moment that counts as the first interrupt of the wait.
    """
    ending = Ending(interrupted=interrupted)
    # Not the thread's own join: where an interrupt ends that, Python takes the thread for ended.
    done = threading.Event()
    threading.Thread(target=_drain, args=(ending, done), name="gpupool drain", daemon=True).start()
    speaks_at = time.monotonic() + QUIET_SECONDS if interrupted else math.inf
    told_at = pressed_at = math.inf
    told = ended = False
    while not done.is_set() and not ended:
        try:
            # All that lasts stands in here: an interrupt that came between would end the wait, and nobody would give
            # the share back.
            with interruptible():
                if not told:
                    if min(speaks_at, pressed_at) <= time.monotonic():
                        told_at, pressed_at = min(told_at, time.monotonic()), math.inf
                        ending.work = _tell()
                        told = True
                elif _ONE_PRESS_SECONDS <= pressed_at - told_at < math.inf:
                    ending.work = device.work() or ending.work
                    ending.session_ended = True
                    device.end_session()
                    ended = True
                    done.wait(_LAST_SECONDS)
                    continue
                done.wait(0.25 if not told and speaks_at < math.inf else 1.0)
        except KeyboardInterrupt:
            ending.interrupted = True
            pressed_at = time.monotonic()
    return ending


def _drain(ending: Ending, done: threading.Event) -> None:
    """In a thread of its own: a blocking call of C code could not be interrupted by the user."""
    try:
        _drain_all(ending)
    finally:
        done.set()


def _drain_all(ending: Ending) -> None:
    while True:
        try:
            device.drain(DRAIN_SECONDS)
        except DeviceCallFailedError as error:
            if error.result == _NOT_READY and (work := device.work()) is not None and work.state == "running":
                continue
            ending.error, ending.problem = error.result, str(error)
            if error.result in (_NOT_READY, _UNAVAILABLE) and not ending.session_ended:
                # Its lease may have ended under it.
                ending.work = device.work() or ending.work
        except GpupoolError as error:
            ending.problem = str(error)
        return


def _tell() -> Work:
    work = device.work()
    text = f"{what_runs(work)} Interrupt again to end its GPU session: arrays in GPU memory are lost, Python variables stay."
    print(text, file=sys.stderr, flush=True)  # noqa: T201 (the cell's error stream)
    return work or Work()


def what_runs(work: Work | None) -> str:
    """One sentence, such as ``The GPU still runs kernel "forever" (since 14 s)``."""
    if work is None:
        return "The GPU worker does not answer."
    if work.state in ("running", "draining"):
        return f"The GPU still runs {_named(work)} (since {work.seconds:.0f} s)."
    if work.state == "stopped":
        return f"The lease has ended, and {_named(work)} is stopped: it goes on with the next lease."
    if work.awaits_turn:
        return "Another session has the turn on the GPU."
    return "The GPU worker has not said that submitted work is done."


def notes_of(ending: Ending) -> list[str]:
    """What the cell's last line says of it."""
    work = ending.work
    if ending.session_ended:
        what = f"{_named(work)} was ended with its GPU session" if work.state else "the GPU session was ended"
        return [f"interrupted: {what}; arrays in GPU memory are lost, Python variables stay"]
    if work.state in ("draining", "stopped") and ending.problem:
        return [
            f"{_named(work)} has not ended, and its GPU is given back: it is stopped, and goes on with the next "
            "%%gpu cell; %gpu reset ends it, with what is in GPU memory"
        ]
    return [ending.problem] if ending.problem else []


def _named(work: Work) -> str:
    return f'kernel "{work.kernel}"' if work.kernel else "a copy or a fill"


def distinct(notes: list[str]) -> list[str]:
    """Without those that another one says too: the way on may follow the same words."""
    return [
        note
        for n, note in enumerate(notes)
        if note not in notes[:n] and not any(note in other for other in notes if other != note)
    ]


def joined(notes: list[str]) -> str:
    """One line of them: whole sentences one after the other, what is no sentence behind a semicolon."""
    return "".join(
        note if n == 0 else (" " if notes[n - 1].endswith(".") else "; ") + note
        for n, note in enumerate(notes)
    )
