"""Memory and time in words, for sentences that a person reads."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def memory_text(count: int) -> str:
    """So many bytes: ``512 B``, ``1.2 GiB``, ``300 MiB``."""
    value, unit = float(count), 0
    while value >= 1023.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit and value < 10 else f"{value:.0f} {_UNITS[unit]}"


def duration_text(seconds: float) -> str:
    """So many seconds: ``45 s``, ``10 min``, ``1 h 30 min``; whole minutes from two minutes on."""
    whole = round(seconds)
    if whole < 120 and whole != 60:
        return f"{whole} s"
    hours, minutes = divmod(round(whole / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
