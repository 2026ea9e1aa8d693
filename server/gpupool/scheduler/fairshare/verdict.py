"""What the rules of projects say to an ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes, or no with the reason. True in a condition when it is yes.

    Attributes:
        reason: an id: ``limit``, ``over-quota``, ``protected``, ``priority``, ``within-fair-share``.
        explanation: one sentence with numbers.
        facts: ``project``, ``asked_milli``, ``used_milli``, ``cap_milli``.
        never: not even in an empty pool.
    """

    admitted: bool
    reason: str = ""
    explanation: str = ""
    facts: Mapping[str, int | str] = field(default_factory=dict)
    never: bool = False

    def __bool__(self) -> bool:
        return self.admitted


YES = Verdict(True)
