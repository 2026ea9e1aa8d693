"""What is said to a request: the scheduler's decision, and what would help, looked for only when somebody is told.

Every look at the queue decides many requests anew, but tells each of them at most once a tick; and what would help takes several
times as long to find as the decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpupool.records import replace
from gpupool.scheduler.model import Decision

#: Figures of a decision that are those of the user whom it was made for.
_OF_USER: Final = frozenset({"held_milli", "held_shares", "quota_milli", "quota_shares"})


class Said:
    """A decision, at first without what would help.

    Args:
        advise: looks for that in the pool as it was when it was decided; None: there is nothing to look for.

    Attributes:
        bare: the decision as it was made.
    """

    def __init__(self, bare: Decision, advise: Callable[[], Decision] | None = None) -> None:
        self.bare = bare
        self._advise = advise
        self._full: Decision | None = None
        self._others: Said | None = None

    def in_full(self) -> Decision:
        """With what would help; the same object each time."""
        if self._full is None:
            self._full = self.bare if self._advise is None else self._advise()
        return self._full

    def without_advice(self) -> Decision:
        """The bare decision; from now on also in full, as looking for more has failed."""
        self._full = self.bare
        return self.bare

    def to_others(self) -> Said:
        """What other users are told of the same wish, who keep no devices; helps by one's own leases are left out.

        The same object each time.
        """
        if self._others is not None:
            return self._others

        def advise() -> Decision:
            helps = tuple(help for help in self.in_full().helps if not help.release_milli)
            return _without_figures_of_user(replace(self.in_full(), wants=(), helps=helps))

        self._others = Said(_without_figures_of_user(replace(self.bare, wants=())), advise)
        return self._others


def _without_figures_of_user(decision: Decision) -> Decision:
    facts = {name: value for name, value in decision.facts.items() if name not in _OF_USER}
    return replace(decision, facts=facts)
