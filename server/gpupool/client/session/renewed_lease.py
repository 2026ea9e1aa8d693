"""Which lease of a session is being renewed: the one that it holds, and no other."""

from __future__ import annotations

from collections.abc import Callable


class RenewedLease:
    """At most one lease.

    Args:
        hold, drop: start and stop the renewal of a lease id.
    """

    def __init__(self, hold: Callable[[str], None], drop: Callable[[str], None]) -> None:
        self._hold = hold
        self._drop = drop
        self._lease_id: str | None = None

    def become(self, lease_id: str | None) -> None:
        """From now on this one; None: none."""
        if lease_id == self._lease_id:
            return
        if self._lease_id is not None:
            self._drop(self._lease_id)
        if lease_id is not None:
            self._hold(lease_id)
        self._lease_id = lease_id
