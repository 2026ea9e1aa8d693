"""An agent obeys no pool server that was deposed: each leader has a higher epoch than those before."""

from __future__ import annotations

from typing import Final

from gpupool.node.connection import ConnectionLostError

#: A server that was stopped, or cut off from its database, may take itself for the leader so long, nanoseconds.
DEPOSED_NS: Final = 60 * 10**9


class LeaderEpoch:
    """The highest epoch that was heard."""

    def __init__(self) -> None:
        self._highest = 0
        self._until_ns = 0

    def heard(self, epoch: int, now_ns: int) -> None:
        """A server has answered. `now_ns`: of a clock that nobody sets.

        Raises:
            ConnectionLostError: it leads no more. A lower epoch that comes long after the higher one is of another ledger.
        """
        if epoch < self._highest and now_ns < self._until_ns:
            raise ConnectionLostError(
                f"this pool server was deposed: it leads under epoch {epoch}, another one under {self._highest}"
            )
        self._highest, self._until_ns = epoch, now_ns + DEPOSED_NS
