"""The figures of `gpupool bench elasticity` as a picture (SVG): devices in use and devices paid for, over the first week."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

_WIDTH: Final = 980
_HEIGHT: Final = 260
_MARGIN: Final = 52
_TOP: Final = 40
_HOURS: Final = 7 * 24
#: Colours that also differ in grey, on white and on dark paper.
_COLOURS: Final = {"fixed": "#999999", "borrowed": "#e08214", "used": "#1f77b4"}


def picture(figures: dict[str, Any]) -> str:
    """The whole SVG: the pool that borrows with the middle idle time, beside the largest fixed one."""
    lent = [run for run in figures["runs"] if run["idle_s"] is not None]
    run = lent[len(lent) // 2]
    most = max(one["devices"] for one in figures["runs"])
    hours = min(_HOURS, len(run["series"]["borrowed_gpus"]))
    lines = {
        "fixed": [float(most)] * hours,
        "borrowed": run["series"]["borrowed_gpus"][:hours],
        "used": run["series"]["allocated_gpus"][:hours],
    }
    names = {
        "fixed": f"a fixed pool of {most}",
        "borrowed": f"borrowed, idle time {run['idle_s'] / 60:g} min",
        "used": "in use (sum of shares)",
    }
    parts = []
    for number, (key, name) in enumerate(names.items()):
        x = _MARGIN + number * 250
        parts.append(f'<rect x="{x}" y="12" width="16" height="4" fill="{_COLOURS[key]}"/>')
        parts.append(_text(x + 22, 18, name))
    parts += [_line(values, most, hours, _COLOURS[key]) for key, values in lines.items()]
    for day in range(hours // 24 + 1):
        at = _x(24 * day, hours)
        parts.append(
            f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{_TOP + _HEIGHT}" stroke="#dddddd"/>'
        )
        if 24 * day < hours:
            parts.append(_text(at + 3, _TOP + _HEIGHT + 16, f"day {day + 1}"))
    for fraction in (0.0, 0.5, 1.0):
        y = _y(fraction * most, most)
        parts.append(_text(4, y + 4, f"{fraction * most:g}"))
    height = _TOP + _HEIGHT + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _x(hour: float, hours: int) -> float:
    return _MARGIN + hour / max(1, hours) * (_WIDTH - _MARGIN - 10)


def _y(value: float, most: float) -> float:
    return _TOP + _HEIGHT * (1 - value / (1.05 * most))


def _line(values: Sequence[float], most: float, hours: int, colour: str) -> str:
    points = " ".join(f"{_x(hour, hours):.1f},{_y(value, most):.1f}" for hour, value in enumerate(values))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#333333">{escape(text)}</text>'
