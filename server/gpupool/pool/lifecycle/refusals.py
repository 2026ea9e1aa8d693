"""Refusals in the journal: each of the first has a line, then few of those that one user gets again and again.

A program that asks in a loop for what is refused would fill the disk otherwise: each refusal is a line and a recorded step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpupool.model import events
from gpupool.model.instructions import Instruction, Journal
from gpupool.rate_limit import RateLimit

#: So many refusals of one user for one reason have a line each at once, then so many a second.
_AT_ONCE: Final = 30
_PER_SECOND: Final = 0.1
#: Who has not been refused for so long, seconds, is forgotten: by then as many are admitted at once as at first.
_FORGOTTEN: Final = _AT_ONCE / _PER_SECOND
#: So many are remembered before anybody is forgotten.
_MOST: Final = 1000


@dataclass(slots=True)
class _Refused:
    limit: RateLimit
    latest: float
    left_out: int = 0


class Refusals:
    """Leaves lines out, and says in the next one that is written how many they were."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], _Refused] = {}

    def thinned(self, event: events.Event, done: Sequence[Instruction], now: float) -> list[Instruction]:
        """What a step does, without its line if that says only once more that a new request is refused at once."""
        lines = [item for item in done if isinstance(item, Journal)]
        if len(lines) != 1 or not isinstance(event, events.Requested):
            return list(done)
        (line,) = lines
        if line.kind != "refuse" or line.data.get("key") != event.key or line.user != event.user:
            return list(done)
        known = self._known(line.user, str(line.data.get("reason", "")), now)
        if not known.limit.admits(now):
            known.left_out += 1
            return [item for item in done if item is not line]
        if known.left_out:
            more = replace(line, data={**line.data, "left_out": known.left_out})
            known.left_out = 0
            return [more if item is line else item for item in done]
        return list(done)

    def _known(self, user: str, reason: str, now: float) -> _Refused:
        if len(self._of) >= _MOST:
            self._of = {key: one for key, one in self._of.items() if now - one.latest < _FORGOTTEN}
        known = self._of.get((user, reason))
        if known is None:
            known = self._of[user, reason] = _Refused(RateLimit(_PER_SECOND, _AT_ONCE, now), now)
        known.latest = now
        return known
