"""What follows from the reason of a lease's or a session's end; all ids are in `gpupool.sentences.reasons`."""

from __future__ import annotations

from typing import Final

#: Why a session ended with all its memory, where it is neither that it was lost nor that an administrator closed it.
SESSION_ENDS: Final = frozenset({"reset", "stopped", "upgrade"})
#: Why a lease ends that nobody wanted to end: the pool takes it back for others or for its node, or has not heard of its
#: holder (a laptop slept). The holder asks again, and its session goes on later.
COMES_BACK: Final = frozenset({"reclaim", "preempt", "consolidate", "drain", "lost"})
