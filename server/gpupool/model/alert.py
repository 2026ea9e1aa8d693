"""A quota that is nearly used up, as the journal and people see it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpupool.shares import format_milli


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

    def sentence(self) -> str:
        """For people, with what would help."""
        who = f"project {self.name}" if self.subject == "project" else self.name
        if self.of == "window":
            had = f"has used {self.used // 1000} of {self.cap // 1000} GPU-seconds of the present window"
            return f"{who} {had} ({self.percent} %); ask an administrator for more, or wait for its end"
        if self.of == "shares":
            held = f"holds {self.used} of at most {self.cap} shares"
            return f"{who} {held} ({self.percent} %); give some back, or ask an administrator for more"
        of_what = f"{format_milli(self.used)} of the {format_milli(self.cap)} GPUs"
        if self.of == "deserved":
            return (
                f"{who} holds {of_what} that it deserves ({self.percent} %); what it takes beyond that may be taken "
                "back for others"
            )
        return (
            f"{who} holds {of_what} that are its limit ({self.percent} %); give shares back, or ask an administrator "
            "for more"
        )
