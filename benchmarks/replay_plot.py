"""The figures of `gpupool bench replay --series --json` as a picture (SVG), for the documentation: `make replay-plot`.

Above, for each size of the pool: the part of the tasks that waited longer than a time. Below: devices in use over time.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

#: Colours that also differ in grey, on white and on dark paper.
_COLOURS: Final = {"shares": "#1f77b4", "whole": "#e08214"}
_NAMES: Final = {"shares": "shares as asked", "whole": "a whole device for each share"}
_WIDTH: Final = 980
_PANEL_HEIGHT: Final = 200
_MARGIN: Final = 52
#: Seconds that the waits are drawn at, and how they are called.
_TIMES: Final = ((1, "1 s"), (60, "1 min"), (3600, "1 h"), (86_400, "1 d"), (2_592_000, "30 d"))


def picture(runs: Sequence[dict[str, Any]]) -> str:
    """The whole SVG."""
    sizes = sorted({int(run["devices"]) for run in runs})
    parts = [_legend()]
    width = (_WIDTH - _MARGIN) / len(sizes)
    for number, size in enumerate(sizes):
        left = _MARGIN + number * width
        parts += _waits(
            [run for run in runs if run["devices"] == size], size, left, width - 14, labels=not number
        )
    top = 60 + _PANEL_HEIGHT + 90
    parts += _use([run for run in runs if run["devices"] == sizes[-1]], sizes[-1], top)
    height = top + _PANEL_HEIGHT + 50
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _legend() -> str:
    entries = []
    for number, (mode, name) in enumerate(_NAMES.items()):
        x = _MARGIN + number * 180
        entries.append(f'<rect x="{x}" y="10" width="14" height="4" fill="{_COLOURS[mode]}"/>')
        entries.append(_text(x + 20, 16, name))
    return "".join(entries)


def _waits(
    runs: Iterable[dict[str, Any]], size: int, left: float, width: float, *, labels: bool
) -> list[str]:
    top, bottom = 60, 60 + _PANEL_HEIGHT
    low, high = math.log10(_TIMES[0][0]), math.log10(_TIMES[-1][0])

    def x(seconds: float) -> float:
        place = (math.log10(max(seconds, 1)) - low) / (high - low)
        return left + min(1.0, max(0.0, place)) * width

    def y(percent: float) -> float:
        return bottom - percent / 100 * (bottom - top)

    parts = [_text(left, top - 10, f"{size} devices: waited longer than …")]
    for seconds, name in _TIMES:
        parts.append(_line([(x(seconds), top), (x(seconds), bottom)], "#dddddd", 1))
        # The first and the last stay inside their panel, beside those of the next.
        anchor = {_TIMES[0]: "start", _TIMES[-1]: "end"}.get((seconds, name), "middle")
        parts.append(_text(x(seconds), bottom + 15, name, anchor=anchor, size=10))
    for percent in (0, 25, 50, 75, 100):
        parts.append(_line([(left, y(percent)), (left + width, y(percent))], "#dddddd", 1))
        if labels:
            parts.append(_text(left - 6, y(percent) + 4, f"{percent} %", anchor="end", size=10))
    for run in runs:
        points = [(x(0), y(run["waited_percent"]))]
        for percent, seconds in run["quantiles"]:
            if seconds >= 1:
                points += [(x(seconds), points[-1][1]), (x(seconds), y(100 - percent))]
        parts.append(_line(points, _COLOURS[run["mode"]], 2))
    return parts


def _use(runs: Iterable[dict[str, Any]], size: int, top: float) -> list[str]:
    bottom = top + _PANEL_HEIGHT
    parts = [
        _text(_MARGIN, top - 10, f"{size} devices: in use over the days of the trace (means of six hours)")
    ]
    runs = list(runs)
    days = max((len(run["series"]["devices_in_use"]) / 24 for run in runs), default=1)
    begin = min((run["series"]["begin_s"] for run in runs), default=0) / 86_400

    def x(day: float) -> float:
        return _MARGIN + day / days * (_WIDTH - _MARGIN - 14)

    def y(devices: float) -> float:
        return bottom - devices / size * _PANEL_HEIGHT

    for devices in range(0, size + 1, max(1, size // 4)):
        parts.append(_line([(x(0), y(devices)), (x(days), y(devices))], "#dddddd", 1))
        parts.append(_text(_MARGIN - 6, y(devices) + 4, str(devices), anchor="end", size=10))
    for day in range(0, int(days) + 1, 5):
        parts.append(_text(x(day), bottom + 15, f"day {begin + day:.0f}", anchor="middle", size=10))
    for run in runs:
        hours = run["series"]["devices_in_use"]
        means = [sum(hours[at : at + 6]) / len(hours[at : at + 6]) for at in range(0, len(hours), 6)]
        points = [(x((number + 0.5) / 4), y(mean)) for number, mean in enumerate(means)]
        parts.append(_line(points, _COLOURS[run["mode"]], 1.6))
    return parts


def _line(points: Sequence[tuple[float, float]], colour: str, width: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#333333">{escape(text)}</text>'


def main(sources: Sequence[str]) -> int:
    """Reads JSON of one or more runs and prints the picture."""
    runs: list[dict[str, Any]] = []
    for source in sources:
        figures = json.loads(Path(source).read_text(encoding="utf-8"))
        runs += [run for run in figures["runs"] if "series" in run]
    if not runs:
        sys.stderr.write("name files with the output of: gpupool bench replay --series --json\n")
        return 1
    sys.stdout.write(picture(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
