"""Whether leases that are protected go on elsewhere for a request that fits nowhere: the administrator's choice."""

from __future__ import annotations

import enum


class Consolidation(enum.Enum):
    """Which leases have to go on elsewhere, with notice, so that a request fits (`taking_rules`).

    ``idle``: those that are not protected, and those whose session computes nothing.
    ``any``: all but guaranteed ones, those that compute included.
    ``off``: none.
    """

    IDLE = "idle"
    ANY = "any"
    OFF = "off"

    def sentence(self, idle_seconds: float) -> str:
        """What it means for people.

        Args:
            idle_seconds: how long a session has computed nothing before it counts as idle.
        """
        match self:
            case Consolidation.ANY:
                return "any leases but guaranteed ones move for requests that fit nowhere, also while they compute"
            case Consolidation.OFF:
                return "no lease moves for requests that fit nowhere"
            case Consolidation.IDLE:
                return (
                    "leases move for requests that fit nowhere when they are not protected, or have computed nothing for "
                    f"{idle_seconds:g} s"
                )
