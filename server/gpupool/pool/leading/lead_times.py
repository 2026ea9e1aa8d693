"""How long things may take between a leader and its standbys, seconds.

The database lets one server write at a time, whatever happens here: no lease is granted twice. These times see to it
that a former leader also *says* nothing any more when another one serves. A leader counts from the moment at which it
*asked* the database; a standby counts from a later one, at which it saw the trace of that question, or that nobody has
the lock any more. So ``sure < free < silent`` is enough, whatever the clocks of both machines show.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeadTimes:
    """The times and how they hang together."""

    #: A leader asks the database so often whether it still leads; a standby says as often that it is there.
    beat: float = 0.5
    #: A leader that was not confirmed for so long serves nobody until it is.
    sure: float = 1.5
    #: A standby looks so often.
    look: float = 0.25
    #: Looks that are further apart say nothing of the time between them.
    gap: float = 1.5
    #: A lock that nobody holds is left to the former leader for so long: its connection may have broken, not its process.
    free: float = 2.0
    #: A leader that has said nothing for so long loses its connection, and with it the lock.
    silent: float = 5.0
    #: A leader that the database has not answered for so long leads no more, if there may be a standby.
    give_up: float = 5.0
    #: The time of `silent` for one that has just taken over: it reads the whole ledger first.
    starting: float = 60.0
    #: A server that was seen within this time is there.
    there: float = 10.0

    def __post_init__(self) -> None:
        if not self.sure < self.free < self.silent:
            raise ValueError(
                f"it must be sure ({self.sure} s) < free ({self.free} s) < silent ({self.silent} s)"
            )


def now() -> float:
    """Seconds of a clock that goes on while the machine or the process sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
