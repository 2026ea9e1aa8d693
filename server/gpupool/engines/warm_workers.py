"""Workers started ahead: they have initialised the driver and wait for the start record of a session.

What a warm worker is worth is what the driver's initialisation takes: next to nothing on the software GPU, up to
seconds on NVIDIA's. No context is made ahead, for each costs device memory.

Nobody has to know a warm worker for it to end: it does when its standard input ends, and that is a pipe of the agent.
So it has no state file before it is taken, and a folder that is left over is only that.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from gpupool.client.endpoint import private_directory
from gpupool.client.errors import DirectoryUnusableError
from gpupool.engines.records import EngineError

#: Begins with a dot: not a session's.
FOLDER: Final = ".warm"
#: After a start, before another worker is started ahead: the session's first kernel comes before.
REFILL_SECONDS: Final = 1.0
_END_SECONDS: Final = 3.0
logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WarmWorker:
    """A process that waits for its start record, in a folder of its own."""

    process: subprocess.Popen[bytes]
    directory: Path


class WarmWorkers:
    """Keeps so many workers ready.

    Args:
        run_directory: where the engine keeps the folders of sessions; warm workers' folders become such by renaming.
        fork: starts a worker in a folder.
        count: how many are kept; 0: none.
    """

    def __init__(
        self, run_directory: Path, fork: Callable[[Path], subprocess.Popen[bytes]], count: int
    ) -> None:
        self._root = run_directory / FOLDER
        self._fork = fork
        self._count = count
        self._ready: list[WarmWorker] = []
        self._next = 0
        self._filling: asyncio.Task[None] | None = None
        # Of an earlier agent, whose warm workers have ended with it.
        shutil.rmtree(self._root, ignore_errors=True)

    def take(self, directory: Path) -> subprocess.Popen[bytes] | None:
        """A warm worker whose folder is now ``directory``, which must be empty or not be there; None: there is none."""
        while self._ready:
            worker = self._ready.pop(0)
            if worker.process.poll() is not None:
                self._drop(worker)
                continue
            try:
                worker.directory.rename(directory)
            except OSError as error:
                logger.warning("a warm worker cannot be used", reason=str(error))
                worker.process.kill()  # not waited for: this is the agent's event loop
                self._drop(worker)
                return None
            return worker.process
        return None

    def refill(self, delay: float = REFILL_SECONDS) -> None:
        """Sees to it that there are enough of them soon. Never waits; a worker that ended is not replaced before."""
        if len(self._ready) < self._count and (self._filling is None or self._filling.done()):
            self._filling = asyncio.create_task(self._fill(delay))

    async def _fill(self, delay: float) -> None:
        await asyncio.sleep(delay)
        with contextlib.suppress(asyncio.CancelledError):
            while len(self._ready) < self._count:
                self._next += 1
                directory = self._root / str(self._next)
                try:
                    private_directory(self._root)
                    process = self._fork(private_directory(directory))
                except (DirectoryUnusableError, EngineError, OSError) as error:
                    logger.warning("no worker could be started ahead", reason=str(error))
                    return
                self._ready.append(WarmWorker(process, directory))

    async def close(self) -> None:
        """Ends those that wait."""
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
        workers, self._ready = self._ready, []
        for worker in workers:
            await asyncio.to_thread(self._drop, worker)
        with contextlib.suppress(OSError):
            self._root.rmdir()

    def _drop(self, worker: WarmWorker) -> None:
        for pipe in (worker.process.stdin, worker.process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            worker.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        shutil.rmtree(worker.directory, ignore_errors=True)
