"""Which lease of a session is being renewed: the one that it holds, and no other."""

from __future__ import annotations

from gpupool.client.holder import LeaseHolder


class RenewedLease:
    """At most one lease.

    Args:
        holder: renews it.
    """

    def __init__(self, holder: LeaseHolder) -> None:
        self._holder = holder
        self._lease_id: str | None = None

    @property
    def is_failing(self) -> bool:
        """Whether the pool did not answer when it was to be renewed last."""
        return self._holder.failing_since is not None

    def become(self, lease_id: str | None) -> None:
        """From now on this one; None: none."""
        if lease_id == self._lease_id:
            return
        if self._lease_id is not None:
            self._holder.drop(self._lease_id)
        if lease_id is not None:
            self._holder.hold(lease_id)
        self._lease_id = lease_id
