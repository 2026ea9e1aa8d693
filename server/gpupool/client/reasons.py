"""What follows from the reason of a lease's or a session's end; all ids are in `gpupool.sentences.reasons`."""

from __future__ import annotations

from typing import Final

#: Why a session ended with all its memory, where it is neither that it was lost nor that an administrator closed it.
SESSION_ENDS: Final = frozenset({"reset", "stopped"})
#: Why the pool takes a lease back for others, or for its node: its holder asks again, and its session goes on later.
COMES_BACK: Final = frozenset({"reclaim", "preempt", "consolidate", "drain"})
