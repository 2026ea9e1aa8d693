"""What follows from the reason of a lease's or a session's end; all ids are in `gpupool.sentences.reasons`."""

from __future__ import annotations

from typing import Final

#: Why a session ended with all its memory, where it is neither that it was lost nor that an administrator closed it.
SESSION_ENDS: Final = frozenset({"reset", "stopped"})
#: Why the pool takes a lease back for others: its holder asks again, and its session goes on when it is its turn.
FOR_OTHERS: Final = frozenset({"reclaim", "preempt", "consolidate"})


def comes_back(reason: str, *, noticed: bool) -> bool:
    """Whether the holder of a lease that ended for ``reason`` asks again by itself.

    An administrator's word is final, unless a notice came before: then it is a matter of the node, which is drained.
    """
    return reason in FOR_OTHERS or (reason == "admin" and noticed)
