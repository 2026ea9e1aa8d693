"""A quota that is nearly used up, as the journal and people see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from gpupool.sentences import Param, Sentence, param, say

#: How a quota is shown, and how many of its units that counts as one, by what it is of.
_AMOUNTS: Final[Mapping[str, tuple[Callable[[int], Param], int]]] = {
    "limit": (param.milli, 1),
    "deserved": (param.milli, 1),
    "shares": (param.count, 1),
    "window": (param.number, 1000),
}


@dataclass(frozen=True, slots=True)
class Alert:
    """How much of one quota is used.

    Attributes:
        subject: ``project`` or ``user``; name: which.
        of: ``limit`` or ``deserved`` (milli-GPU), ``shares`` (a number), ``window`` (milli-GPU-seconds).
    """

    subject: str
    name: str
    of: str
    used: int
    cap: int

    @property
    def id(self) -> str:
        return f"{self.subject}/{self.of}/{self.name}"

    @property
    def percent(self) -> int:
        """Rounded down."""
        return 100 * self.used // self.cap

    def data(self) -> dict[str, Any]:
        """As the journal has it."""
        return asdict(self)

    def said(self) -> Sentence:
        """For people, with what would help."""
        amount, unit = _AMOUNTS[self.of]
        return say(
            f"alert.{self.of}",
            who=self._who(),
            used=amount(self.used // unit),
            cap=amount(self.cap // unit),
            percent=param.count(self.percent),
        )

    def _who(self) -> Param | Sentence:
        if self.subject == "project":
            return say("alert.project", project=param.project(self.name))
        return param.user(self.name)
