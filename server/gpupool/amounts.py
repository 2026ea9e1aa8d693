"""Bytes for people."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def amount(number: int) -> str:
    """Three digits and a unit: 1536 → ``1.5 KiB``."""
    value, unit = float(number), _UNITS[0]
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return (
        f"{value:.0f} {unit}"
        if unit == "B"
        else f"{value:.3g} {unit}"
        if value < 100
        else f"{value:.0f} {unit}"
    )
