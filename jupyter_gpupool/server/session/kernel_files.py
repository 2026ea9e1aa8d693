"""The files that tell a kernel's process of its share, and the one with which it asks for one."""

from __future__ import annotations

from pathlib import Path

from gpupool.client.session.files import SessionFiles
from gpupool.client.session_file import write_private


class KernelFiles(SessionFiles):
    """What is written for one launch of a kernel, and goes with it.

    Args:
        path: the session file; the others lie beside it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        #: Read by the kernel for each request; its environment names it.
        self.capability = path.with_suffix(".capability")

    def write_capability(self, secret: str) -> None:
        """What the kernel shows from now on. Raises OSError."""
        write_private(self.capability, secret.encode())

    def remove(self) -> None:
        super().remove()
        self.capability.unlink(missing_ok=True)
