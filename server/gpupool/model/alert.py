"""A quota that is nearly used up, as the journal and people see it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpupool.sentences import Param, Sentence, param, say


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
        amount = param.milli if self.of in ("limit", "deserved") else param.count
        unit = 1000 if self.of == "window" else 1
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
