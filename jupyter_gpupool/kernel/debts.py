"""Scopes that ended without a word to the server, because it could not be reached: it is told later."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.broker import Broker
from jupyter_gpupool.kernel.errors import GpuError


class Debts:
    """What is still to be told.

    The server finds out by itself that a cell has ended. A ``with`` block may outlive its cell: until its end is told, its
    share stays with nobody.
    """

    def __init__(self, connect: Callable[[], Broker]) -> None:
        self._connect = connect
        self._owed: set[str] = set()

    def add(self, scope_id: str) -> None:
        """Notes a scope whose end the server does not know of."""
        self._owed.add(scope_id)

    def settle(self) -> None:
        """Tells what is owed, if anything is. A server that still cannot be reached is asked once, not for each scope."""
        for scope_id in list(self._owed):
            try:
                state = self._connect().call("POST", "self/release", {"scope": scope_id, "reason": "exit"})
            except GpuError:
                return
            self._owed.discard(scope_id)
            if state.get("state") not in ("attached", "warned"):
                device.detach()
