"""A child process with a log: started again when it dies, ended with this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_LAST_LINES: Final = 15


def bound_to_us(command: Sequence[str]) -> list[str]:
    """The command, made to end when this process does. To be started by the main thread, which lives as long."""
    helper = str(Path(__file__).with_name("die_with_parent.py"))
    return [sys.executable, "-I", "-S", helper, str(os.getpid()), *command]


def log_end(log: Path, begin: int = 0) -> str:
    """Its last lines. `begin`: the byte at which they begin at the earliest: what is before is of another start."""
    try:
        with log.open("rb") as file:
            file.seek(begin)
            text = file.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-_LAST_LINES:])


class Service:
    """One child of a keeper.

    Args:
        name: what people call it, such as ``the pool``.
        command: what is run.
        environment: of the child.
        log: what it writes.
        held: a descriptor that it holds too, as long as it lives.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, held: int
    ) -> None:
        self.name = name
        self._held = held
        self.log = log
        self._command = command
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._started_at = 0.0
        self._log_begins = 0

    def log_end(self) -> str:
        """The last lines since its last start."""
        return log_end(self.log, self._log_begins)

    def age(self) -> float:
        """Seconds since its last start."""
        return time.monotonic() - self._started_at

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._log_begins = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *bound_to_us(self._command),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(self._held,),
            )
        self._started_at = time.monotonic()

    async def ended(self) -> int:
        """Waits for its end; the status."""
        assert self._process is not None, "started first"
        return await self._process.wait()

    async def stop(self, seconds: float) -> None:
        """Asks it to end, and ends it when it does not in time."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
