"""Every timer of the pool in one place, seconds. Tests run with all of them scaled down."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

#: More than a node agent waits for the answer to a revocation would look like a worker that does not answer, seconds.
MOST_DRAIN: Final = 8.0


@dataclass(frozen=True, slots=True)
class Timers:
    """The timers and how they hang together.

    The safety of the pool rests on ``fence + drain < reuse``: a worker stops serving ``fence`` seconds after
    its agent *sent* the last heartbeat that was answered, and nothing of it computes ``drain`` seconds later; the
    pool gives its share to another ``reuse`` seconds after it *answered* that heartbeat. The agent sends before the
    pool answers, so the worker is always the first, whatever the clocks show.
    """

    #: Holders renew their leases this often (jitter ±20 % is theirs to add).
    renew: float = 5.0
    #: A lease not renewed for this long is revoked; reason `lost`.
    holder: float = 25.0
    #: A lease whose holder went away before the answer reached it is revoked after this time.
    claim: float = 5.0
    #: Agents send heartbeats this often.
    heartbeat: float = 5.0
    #: After a restart nodes and holders are given so long to come back before anything is decided without them.
    return_: float = 6.0
    #: A node silent for this long gets no new shares.
    suspect: float = 15.0
    #: A worker serves at most this long after its last answered heartbeat.
    fence: float = 25.0
    #: Work that is under way when a lease ends has this long to finish, then its worker stops it or ends itself.
    drain: float = 4.0
    #: A share is free this long after the last answered heartbeat that covered it.
    reuse: float = 30.0
    #: A worker must have started, or taken a lease, after this time.
    start: float = 60.0
    #: The same for a worker that first fetches a session, or a lease for which memory comes from the host.
    transfer: float = 300.0
    #: Memory must have been moved off a device after this time; the agent gives its worker less.
    park: float = 150.0
    #: A parked session whose memory could not be moved is not tried again before this time.
    park_retry: float = 30.0
    #: A parked session whose client is gone is closed after this time.
    client_gone: float = 3600.0
    #: A session image that nobody asked for is dropped after this time.
    image_kept: float = 7 * 86400.0
    #: Between the word that a lease will be taken back for another and its end.
    notice: float = 30.0
    #: A lease is not taken back for another before this time, unless its project says otherwise.
    min_run: float = 60.0
    #: Where a session goes on that was moved away for another, room is kept this long.
    keep_place: float = 60.0
    #: What a project used weighs half after this time.
    half_life: float = 7 * 86400.0
    #: Ended leases and closed sessions are remembered this long, for retries with the same key.
    remember: float = 3600.0
    #: The pool looks at its timers this often.
    tick: float = 0.5
    #: A tick that comes this late means that the pool itself stood still; nobody is blamed for it.
    stall: float = 3.0

    def __post_init__(self) -> None:
        if not self.fence + self.drain < self.reuse:
            raise ValueError(
                f"fence and drain ({self.fence} s and {self.drain} s) must be shorter than reuse ({self.reuse} s)"
            )

    def draining(self, seconds: float) -> Timers:
        """With another ``drain``, and room for it before a share is used again."""
        return replace(self, drain=seconds, reuse=max(self.reuse, self.fence + seconds + 1.0))

    def scaled(self, factor: float) -> Timers:
        """All timers times ``factor`` (tests use 1/20). ``drain`` is the workers' own and stays; ``reuse`` leaves room for it."""
        values = {f.name: getattr(self, f.name) * factor for f in fields(self)}
        reuse = values["reuse"] + self.drain * (1 - factor)
        return Timers(**{**values, "drain": self.drain, "reuse": reuse})
