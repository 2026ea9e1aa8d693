"""The files that tell a kernel's process of its share: session file, device profile, usage."""

from __future__ import annotations

import logging
from pathlib import Path

from gpupool.client.session_file import SessionFile, SessionFileError, write_private
from gpupool.client.usage_file import UsageFile

from jupyter_gpupool.call_message import call_message
from jupyter_gpupool.session_state import Session, State

logger = logging.getLogger(__name__)


class KernelFiles:
    """What is written for one launch of a kernel, and goes with it.

    Args:
        path: the session file; the others lie beside it.
    """

    def __init__(self, path: Path) -> None:
        self.session = SessionFile(path)
        self.usage = UsageFile(path)
        self._profile_path = path.with_suffix(".profile")
        #: Read by the kernel for each request; its environment names it.
        self.capability = path.with_suffix(".capability")
        self._profile = ""
        self._software = False

    def keep_profile(self, profile: str, software: bool) -> None:
        """The device profile that the session file names from now on; empty: the former one stays."""
        self._software = software
        if profile and profile != self._profile:
            self._profile = profile
            write_private(self._profile_path, profile.encode())

    def write_capability(self, secret: str) -> None:
        """What the kernel shows from now on. Raises OSError."""
        write_private(self.capability, secret.encode())

    def write(self, record: Session) -> None:
        """Rewrites the session file. A failure is logged: the session goes on without it."""
        lease = record.lease
        profile = str(self._profile_path) if self._profile else ""
        try:
            if lease is not None and not record.resting:
                self.session.write_attached(lease, profile=profile, resumes=record.returns)
                return
            if record.resting or record.returning:
                state = "waiting"
            else:
                state = "closed" if record.state is State.LOST else str(record.state)
            self.session.write(
                state,
                session=record.session_id or "",
                message=call_message(record),
                software=self._software,
                profile=profile,
            )
        except (OSError, SessionFileError) as error:
            logger.error("the session file %s cannot be written: %s", self.session.path, error)

    def remove(self) -> None:
        self.session.remove()
        self.usage.remove()
        self._profile_path.unlink(missing_ok=True)
        self.capability.unlink(missing_ok=True)
