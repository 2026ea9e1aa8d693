"""What the rules of projects say to a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpupool.sentences import NOTHING, Sentence


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes, or no with the reason. True in a condition when it is yes.

    Attributes:
        reason: an id: ``limit``, ``over-quota``, ``protected``, ``priority``, ``within-fair-share``.
        said: one sentence with numbers.
        facts: ``project``, ``asked_milli``, ``used_milli``, ``cap_milli``.
        never: not even in an empty pool.
    """

    admitted: bool
    reason: str = ""
    said: Sentence = NOTHING
    facts: Mapping[str, int | str] = field(default_factory=dict)
    never: bool = False

    @property
    def explanation(self) -> str:
        """The words, with all names."""
        return str(self.said)

    def __bool__(self) -> bool:
        return self.admitted


YES = Verdict(True)
