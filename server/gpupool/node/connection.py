"""One stream to the pool: what was said on it, and until when workers may rely on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any


class ConnectionLostError(Exception):
    """The stream to the pool broke, or the pool stopped answering."""


@dataclass(slots=True)
class Connection:
    """One stream to the pool and what was said on it."""

    outgoing: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    #: Heartbeat number → boot-time clock at its sending.
    sent_at: dict[int, int] = field(default_factory=dict)
    #: Ends told before this heartbeat can be forgotten once it is answered.
    told_ends: dict[int, tuple[str, ...]] = field(default_factory=dict)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    number: int = 0
    #: Boot-time clock at the sending of the hello or the last heartbeat that was answered.
    base_ns: int = 0

    def deadline_ns(self, fence_seconds: float) -> int:
        """Until when a worker may serve without another answered heartbeat."""
        return self.base_ns + int(fence_seconds * 1e9)
