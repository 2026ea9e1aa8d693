"""``%gpu auto on``: a CUDA call that finds no GPU attached gets one by itself, and waits for it.

The client runtime calls :meth:`AutoAttach.unattached` in the thread of such a call and, once it says
that a GPU is attached, makes the call again. So it must never raise: its caller is C code. What it
attaches is a hold, as by ``%gpu attach``: it goes back by detach or when it is idle.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import Final

from gpupool.client.runtime import Unattached

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.arguments import CellArguments
from jupyter_gpupool.kernel.errors import GpuError, GpuWaitInterrupted
from jupyter_gpupool.kernel.interrupts import in_main_thread, interruptible, next_interrupt_says
from jupyter_gpupool.kernel.progress import show
from jupyter_gpupool.kernel.scope import Scopes

#: After an attempt in vain calls fail at once for so long: those that clean up behind the first one must
#: not wait as long again, each of them.
QUIET_SECONDS: Final = 1.0

Answer = tuple[Unattached, str]


class AutoAttach:
    """The mode of one kernel, off at first."""

    def __init__(self, scopes: Scopes, clock: Callable[[], float] = time.monotonic) -> None:
        self._scopes = scopes
        self._clock = clock
        self._arguments: CellArguments | None = None
        self._turn = threading.Lock()
        self._attempts = 0
        self._answer: Answer = (Unattached.REFUSED, "")
        self._failed_at = -math.inf
        #: The user does not want to wait, until the next cell starts.
        self._interrupted = False
        #: Why the last call of this cell got no GPU; None: no call of it was refused.
        self.refusal: str | None = None

    @property
    def arguments(self) -> CellArguments | None:
        """What is asked for; None while the mode is off."""
        return self._arguments

    def on(self, arguments: CellArguments) -> None:
        """From now on. Raises GpuError where the runtime cannot be loaded."""
        self._arguments = replace(arguments, hold=True)
        self._forget()
        device.on_unattached(self.unattached)

    def off(self) -> None:
        self._arguments = None
        device.on_unattached(None)

    def cell_starts(self) -> None:
        """A new cell is a new wish: an earlier interrupt or refusal says nothing about it."""
        self._forget()

    def _forget(self) -> None:
        self._interrupted = False
        self._failed_at = -math.inf
        self.refusal = None

    def unattached(self) -> Answer:
        """A CUDA call of this thread finds no GPU attached."""
        before = self._attempts
        try:
            # Threads that come meanwhile wait for this attempt's answer instead of making their own.
            with interruptible():
                self._turn.acquire()
            try:
                if self._attempts == before:
                    self._answer = self._attempt()
                    self._attempts += 1
                return self._for_this_thread()
            finally:
                self._turn.release()
        except KeyboardInterrupt:
            self._interrupted = True
            return self._interrupt("stopped waiting for a GPU that another thread asks for")

    def _attempt(self) -> Answer:
        arguments = self._arguments
        if arguments is None:
            return Unattached.REFUSED, ""
        if self._interrupted or self._clock() - self._failed_at < QUIET_SECONDS:
            return Unattached.REFUSED, self._answer[1]
        started = self._clock()
        try:
            answer = self._scopes.attach(self._as_before(arguments), None, by="auto")
            device.adapt(software=bool(answer.get("software")))
        except GpuWaitInterrupted as error:
            self._interrupted = True
            return Unattached.INTERRUPTED, str(error)
        except GpuError as error:
            self.refusal = f"%gpu auto is on, but no GPU could be attached: {error}"
            self._failed_at = self._clock()
            return Unattached.REFUSED, self.refusal
        self._say(str(answer.get("description") or "GPU"), self._clock() - started)
        return Unattached.ATTACHED, ""

    def _as_before(self, arguments: CellArguments) -> CellArguments:
        """Without a share of its own the mode takes what this kernel had last: its memory fits into that."""
        last = self._scopes.last_share
        if arguments.share is not None or last is None:
            return arguments
        return replace(arguments, share=last[0], count=last[1])

    def _for_this_thread(self) -> Answer:
        result, message = self._answer
        if result is not Unattached.INTERRUPTED:
            return self._answer
        if in_main_thread():
            return self._interrupt(message)
        return Unattached.REFUSED, message

    def _interrupt(self, message: str) -> Answer:
        # Raised here it would be lost in C code; the runtime raises the signal again behind the call.
        next_interrupt_says(message)
        return Unattached.INTERRUPTED, message

    def _say(self, description: str, waited: float) -> None:
        after = f" after {waited:.0f} s of waiting" if waited >= 1 else ""
        text = (
            f"Attached by itself (%gpu auto): {description}{after}. "
            "It goes back when nothing uses it, or by %gpu detach."
        )
        # A thread without a cell has nowhere to show it; the sidebar does.
        with contextlib.suppress(Exception):
            show(text, f'<div class="jp-gpupool-Auto" role="status">{escape(text)}</div>')
