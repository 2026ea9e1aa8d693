"""Why the CUDA calls of a cell wait while the pool is silent, said once below the cell.

The waiting is the client runtime's, in C: whoever holds this kernel's lease writes into the session file that the pool has
not answered for longer than a lease lives. A thread beside the cell reads that, as far as the program lets it run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from gpupool.client.session_file import SILENT

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.progress import Progress

#: How often the thread looks at the session file, seconds.
LOOK_SECONDS: Final = 1.0


class SilentPool:
    """What the cells of one kernel are told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: IPython's objects for the cells that run, by identity: they nest, and run beside each other in subshells.
        self._cells: list[object] = []
        self._sight: _Sight | None = None

    def pre_run_cell(self, info: object) -> None:
        with self._lock:
            self._cells.append(info)
            if self._sight is None:
                self._sight = _Sight(self._clock)

    def post_run_cell(self, result: Any) -> None:
        """``result`` is None when the cell was cancelled."""
        with self._lock:
            if result is None:
                del self._cells[-1:]
            else:
                self._cells = [info for info in self._cells if info is not result.info]
            if self._cells or self._sight is None:
                return
            sight, self._sight = self._sight, None
        sight.end()


class _Sight:
    """What is shown below one cell."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._progress = Progress()
        self._since: float | None = None
        threading.Thread(target=self._run, name="gpupool silence", daemon=True).start()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            with self._lock:
                if not self._over.is_set():
                    self._look()

    def end(self) -> None:
        self._over.set()
        with self._lock:
            self._waited()

    def _look(self) -> None:
        found = device.session()
        if found.state != "waiting" or found.reason != SILENT:
            self._waited()
        elif self._since is None:
            self._since = self._clock()
            at = time.strftime("%H:%M:%S")
            self._progress.tell(f"{found.message} This cell has waited since {at}; Interrupt ends the wait.")

    def _waited(self) -> None:
        """The line stays, in a form that is right in a saved notebook: it says why the cell took so long."""
        if self._since is not None:
            seconds, self._since = self._clock() - self._since, None
            self._progress.tell(
                f"The GPU pool did not answer: for {seconds:.0f} s the CUDA calls of this cell waited for it."
            )
