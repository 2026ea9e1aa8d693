"""Times as people write them (``90``, ``90s``, ``1.5m``, ``2h``, ``7d``) and read them (``45 s``, ``1 h 30 min``).

Imports nothing but the standard library, for the command line and kernels alike.
"""

from __future__ import annotations

import re
from typing import Final

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(s|m|h|d)?", re.ASCII)
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
#: How one is written, for the errors of who reads them.
WRITTEN: Final = "seconds, or 90s, 5m, 2h, 1d"


class DurationError(ValueError):
    """The text is no time; ``str()`` is one sentence with it."""


def parse_duration(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``1.5m``, ``2h`` or ``7d``. Raises DurationError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise DurationError(f"{text!r} is no time; write {WRITTEN}")
    return float(match[1]) * _SECONDS[match[2] or ""]


def duration_text(seconds: float) -> str:
    """So many seconds: ``45 s``, ``10 min``, ``1 h 30 min``; whole minutes from two minutes on."""
    whole = round(seconds)
    if whole < 120 and whole != 60:
        return f"{whole} s"
    hours, minutes = divmod(round(whole / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
