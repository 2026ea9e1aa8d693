"""Memory in words, for sentences that a person reads."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def memory_text(count: int) -> str:
    """So many bytes: ``512 B``, ``1.2 GiB``, ``300 MiB``."""
    value, unit = float(count), 0
    while value >= 1023.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit and value < 10 else f"{value:.0f} {_UNITS[unit]}"
