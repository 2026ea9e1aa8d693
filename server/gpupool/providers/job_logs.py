"""What the agents of a provider's jobs write: a file for each job, as long as it is one of the latest or young."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.providers.jobs import JOB_NAME

_KEPT: Final = 20
#: An agent that has written nothing for so long may still run, and its last words are worth less, seconds.
_KEPT_SECONDS: Final = 7 * 86_400.0
_LAST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class JobLogs:
    """The files of one provider. `folder` is made with mode 0700 when there is something to write."""

    folder: Path

    def path(self, job: str) -> Path:
        """Raises ValueError: `job` is no name of a job."""
        if not JOB_NAME.fullmatch(job):
            raise ValueError(f"{job[:40]!r} is no name of a job")
        return self.folder / f"{job}.log"

    def prepare(self) -> None:
        """Raises OSError: the folder cannot be made."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def last_line(self, job: str) -> str:
        """What an agent said last: why it could not start, if it could not. Empty: nothing can be read."""
        try:
            with self.path(job).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))
                text = log.read(_LAST_BYTES).decode(errors="replace")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")

    def remove_old(self) -> None:
        """Keeps those of the latest jobs, and all that were written to lately: of jobs that may still run."""
        written = sorted((log.stat().st_mtime, log) for log in self.folder.glob("*.log"))
        for at, log in written[:-_KEPT]:
            if at < time.time() - _KEPT_SECONDS:
                log.unlink(missing_ok=True)
