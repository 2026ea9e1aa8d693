"""What follows from the reason of a lease's or a session's end, or of a refusal.

The ids of ends are all in `gpupool.sentences.reasons`.
"""

from __future__ import annotations

from typing import Final

#: Why a session ended with all its memory, where it is neither that it was lost nor that an administrator closed it.
SESSION_ENDS: Final = frozenset({"reset", "stopped", "upgrade"})
#: Why a lease ends that nobody wanted to end: the pool takes it back for others or for its node, or has not heard of its
#: holder (a laptop slept). The holder asks again, and its session goes on later.
COMES_BACK: Final = frozenset({"reclaim", "preempt", "consolidate", "drain", "lost"})

#: A request was granted, and its worker or its node did not live to serve it. The session stays where it was. The request's
#: key stands for that lease: whoever asks again needs another one. A lease that somebody gave back on purpose before it had
#: started is ``released``, and not among them.
NOT_STARTED: Final = frozenset({"lease-ended", "worker-failed"})
#: Refusals that say nothing for good: the pool was heard and has no answer now, or what it gave did not come up. A little
#: later the same may be asked again.
MOMENTARY: Final = NOT_STARTED | {"hub-busy", "hub-down", "ledger", "too-many-requests"}
#: The same for another size of a lease, which may have either size then: its worker has not answered the pool yet
#: (``worker-failed``; a worker that says no is ``worker-refused``), or the pool has not finished the change before
#: (``busy``).
RESIZE_UNANSWERED: Final = MOMENTARY | {"busy"}
