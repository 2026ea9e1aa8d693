"""A GPU session that failed: which cell broke it, and what to do. Nothing runs in it until it is reset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.errors import GpuError
from jupyter_gpupool.kernel.failures import failure_name

HOW_TO_GO_ON = "%gpu reset starts a new one; arrays in GPU memory are lost."


@dataclass(frozen=True, slots=True)
class Failure:
    """What happened.

    Attributes:
        session: its id.
        error: the CUresult that ended it.
        cell: execution count of the cell that was running; None: not known.
    """

    session: str
    error: int
    cell: int | None = None

    def __str__(self) -> str:
        where = f" in cell [{self.cell}]" if self.cell is not None else ""
        return f"This kernel's GPU session failed{where} ({failure_name(self.error)}). {HOW_TO_GO_ON}"


class FailedSession:
    """What is known of the session that this kernel has now.

    Args:
        session: the id of that session; empty: there is none.
    """

    def __init__(self, session: Callable[[], str] = lambda: device.session().session) -> None:
        self._session = session
        self._failure: Failure | None = None

    def found(self) -> Failure | None:
        """The failure; None: there is none, or it was another session's."""
        if self._failure is not None and self._failure.session != self._session():
            self._failure = None
        return self._failure

    def note(self, error: int, cell: int | None) -> Failure | None:
        """Told at the end of each cell which error the session has (0: none); the failure, if it is new."""
        if error == 0 or self.found() is not None:
            return None
        session = self._session()
        self._failure = Failure(session, error, cell) if session else None
        return self._failure

    def name(self, cell: int | None) -> Failure | None:
        """A cell has ended that noted a failure before its number was known; that failure, if there is one."""
        if self._failure is None or self._failure.cell is not None or cell is None:
            return None
        self._failure = replace(self._failure, cell=cell)
        return self._failure

    def refuse(self) -> None:
        """Raises GpuError in a session that failed: what is attached to it could not be used."""
        if (failure := self.found()) is not None:
            raise GpuError(str(failure), "failed")
