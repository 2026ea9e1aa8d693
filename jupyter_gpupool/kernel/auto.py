"""``%gpu auto on``: a CUDA call that finds no GPU attached wishes for one, and waits for it.

The waiting is the client runtime's, in C (src/client/session/attach_again.h), and the attaching is whoever's holds this kernel's
leases: nothing of it runs inside the call. Here is what a person sees of it: the place in the queue, that a GPU came by
itself, why it did not. A thread beside the cell looks, as far as the program lets it run; the rest is said when the cell
ends. What is attached is a hold, as by ``%gpu attach``: it goes back by detach or when it is idle.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable
from html import escape
from typing import Any, Final

from gpupool.client.session_file import SessionRecord
from gpupool.request.gpu_request import GpuRequest

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.broker import Broker
from jupyter_gpupool.kernel.errors import GpuError
from jupyter_gpupool.kernel.progress import Progress, show

#: How often the thread beside a cell looks at the session file, seconds.
LOOK_SECONDS: Final = 0.2


class AutoAttach:
    """The mode of one kernel, off at first."""

    def __init__(self, connect: Callable[[], Broker], clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._request: GpuRequest | None = None
        #: Of each shell: a kernel runs cells of several at once.
        self._sights = threading.local()

    @property
    def request(self) -> GpuRequest | None:
        """What is asked for; None while the mode is off."""
        return self._request

    def on(self, request: GpuRequest) -> None:
        """From now on. Raises GpuError where the runtime cannot be loaded."""
        device.wish_for_leases(True)
        self._request = request
        # An interpreter that ends runs destructors that may call CUDA; they need not wait for a GPU.
        atexit.unregister(self.off)
        atexit.register(self.off)

    def off(self) -> None:
        self._request = None
        device.wish_for_leases(False)

    def cell_starts(self) -> None:
        """A new cell is a new wish: that one was in vain, or interrupted, says nothing about it."""
        if self._request is not None:
            device.wish_for_leases(True)
            self._sights.now = _Sight(self._connect, self._clock)

    def cell_ends(self, error: BaseException | None) -> None:
        sight: _Sight | None = getattr(self._sights, "now", None)
        self._sights.now = None
        if sight is not None:
            sight.end(error)


class _Sight:
    """What one cell is shown."""

    def __init__(self, connect: Callable[[], Broker], clock: Callable[[], float]) -> None:
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._progress = Progress()
        self._place: int | None = None
        self._waits_since: float | None = None
        self._before = device.session()
        self._shown = _lease_of(self._before)
        threading.Thread(target=self._run, name="gpupool auto", daemon=True).start()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()

    def end(self, error: BaseException | None) -> None:
        self._over.set()
        self._look()
        with self._lock:
            self._progress.done()
        if (
            self._place is not None
            and error is not None
            and (_interrupted(error) or device.stopped_waiting())
        ):
            text = (
                f"gpupool: stopped waiting for a GPU (place {self._place} in the queue); nothing is attached."
            )
            print(text, file=sys.stderr)  # noqa: T201 (the cell's error stream)

    def _look(self) -> None:
        with self._lock:
            try:
                found = device.session()
                if found.generation == self._before.generation:
                    return
                self._before = found
                if found.state == "queued":
                    self._queued(self._connect().call("GET", "self/status"))
                elif found.state == "attached":
                    self._attached(found)
            except GpuError:
                # Nobody can be asked: there is nothing to show.
                return

    def _queued(self, status: dict[str, Any]) -> None:
        if self._waits_since is None:
            self._waits_since = self._clock()
        queue = status.get("queue")
        if queue and queue.get("place"):
            self._place = int(queue["place"])
            self._progress.queued(queue)

    def _attached(self, found: SessionRecord) -> None:
        if _lease_of(found) == self._shown:
            return
        self._shown = _lease_of(found)
        self._progress.done()
        self._place = None
        waited = 0.0 if self._waits_since is None else self._clock() - self._waits_since
        self._waits_since = None
        status = self._connect().call("GET", "self/status")
        if status.get("by") != "auto":
            return
        after = f" after {waited:.0f} s of waiting" if waited >= 1 else ""
        text = (
            f"Attached by itself (%gpu auto): {status.get('description') or 'GPU'}{after}. "
            "It goes back when nothing uses it, or by %gpu detach."
        )
        show(text, f'<div class="jp-gpupool-Auto" role="status">{escape(text)}</div>')


def _interrupted(error: BaseException | None) -> bool:
    """Whether an interrupt is behind it; clean-up that failed after it may be in front."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _lease_of(record: SessionRecord) -> tuple[str, int] | None:
    return (record.session, record.epoch) if record.state == "attached" else None
