"""A lease is taken back for another, with notice: what its holder does until then.

Shortly before the end the holder says ``waiting`` in the session file. The client runtime then sends nothing more,
has everything executed that it had sent, and says so beside the file (``src/client/session/lease_wait.cpp``). Then the
lease may end at once. A worker keeps what comes without a lease for the next one, up to a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from gpupool.client.errors import GpupoolError
from gpupool.client.session_file import SessionFile
from gpupool.client.types import Notice

#: So long before the end a program begins to wait, seconds: what it has sent must be executed by then.
PAUSE_SECONDS: Final = 10.0
#: How often it is looked whether that is done, seconds.
_LOOK_SECONDS: Final = 0.1


def pause_seconds(longest: float) -> float:
    """How long before its end a lease rests, of a notice of ``longest`` seconds: at most a third of it."""
    return min(PAUSE_SECONDS, longest / 3)


@dataclass(slots=True)
class NoticeWatch:
    """The notice of one lease, which every renewal tells anew. Times are monotonic seconds.

    Attributes:
        until: when the lease ends.
        longest: seconds that were left when it was told first.
        resting: its holder has been told that the last moments have come.
    """

    notice: Notice
    until: float
    longest: float
    resting: bool = False

    @classmethod
    def begins(cls, notice: Notice, now: float) -> NoticeWatch:
        return cls(notice, now + notice.seconds_left, notice.seconds_left)

    def told_again(self, notice: Notice, now: float) -> None:
        self.notice = notice
        self.until = now + notice.seconds_left

    @property
    def rests_at(self) -> float:
        return self.until - pause_seconds(self.longest)


async def hand_over(
    release: Callable[[str, str], Awaitable[None]],
    file: SessionFile,
    lease_id: str,
    notice: Notice,
    generation: int,
) -> None:
    """Gives the lease back as soon as the process is done with it, or leaves it to the pool to end it.

    One that is moved is left to the pool in any case: it keeps the new place from the end on.

    Args:
        release: of the pool: lease id, reason.
        file: the session file, by which the process says that it is done.
        lease_id: the lease that ends.
        notice: why it ends, and when at the latest.
        generation: of the session file that says ``waiting``.
    """
    until = time.monotonic() + notice.seconds_left
    while not file.settled(generation):
        if time.monotonic() >= until:
            return
        await asyncio.sleep(_LOOK_SECONDS)
    if notice.reason != "consolidate":
        with contextlib.suppress(GpupoolError):
            await release(lease_id, notice.reason)
