"""The line that a ``%%gpu`` cell ends with: what the cell used, as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

from gpupool.client.hints import hint
from gpupool.client.runtime import Counters

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one cell used.

    Attributes:
        wall_seconds: from the attach to the end of the drain.
        device_seconds: measured on the device; None: the worker did not tell.
        calls: CUDA calls of the program; ``asks``: those that waited for an answer.
        ask_seconds: time spent waiting for answers.
        memory_peak_bytes: most device memory in use at once, all devices.
        hint: what makes the cell wait for the network, if one kind of call does.
    """

    wall_seconds: float
    device_seconds: float | None
    calls: int
    asks: int
    ask_seconds: float
    bytes_to_device: int
    bytes_from_device: int
    memory_peak_bytes: int | None
    hint: str | None = None

    @classmethod
    def between(cls, before: Counters, after: Counters, wall_seconds: float) -> Figures:
        """The difference of two readings of the process's counters."""
        device_seconds = memory_peak = None
        if after.worker is not None:
            # A first attach starts a worker whose counters begin at zero.
            started = before.worker.device_seconds if before.worker is not None else 0.0
            device_seconds = max(0.0, after.worker.device_seconds - started)
            memory_peak = sum(after.worker.memory_peak)
        return cls(
            wall_seconds=wall_seconds,
            device_seconds=device_seconds,
            calls=after.calls - before.calls,
            asks=after.asks - before.asks,
            ask_seconds=after.ask_seconds - before.ask_seconds,
            bytes_to_device=after.bytes_to_device - before.bytes_to_device,
            bytes_from_device=after.bytes_from_device - before.bytes_from_device,
            memory_peak_bytes=memory_peak,
            hint=hint(before, after, wall_seconds),
        )

    def parts(self) -> list[tuple[str, str]]:
        """(name, value) pairs in the order in which they are shown."""
        parts = []
        if self.device_seconds is not None:
            parts.append(("device time", f"{_seconds(self.device_seconds)} of {_seconds(self.wall_seconds)}"))
        else:
            parts.append(("wall time", _seconds(self.wall_seconds)))
        parts.append(("calls", f"{self.calls:,}"))
        parts.append(("blocking round trips", f"{self.asks:,} ({_seconds(self.ask_seconds)})"))
        parts.append(("to device", amount(self.bytes_to_device)))
        parts.append(("from device", amount(self.bytes_from_device)))
        if self.memory_peak_bytes is not None:
            parts.append(("peak memory", amount(self.memory_peak_bytes)))
        return parts


def text_line(title: str, figures: Figures | None, note: str) -> str:
    """One line of plain text, and one with a hint where there is one."""
    parts = [f"{name} {value}" for name, value in (figures.parts() if figures else [])]
    line = " · ".join([title, *parts, *([note] if note else [])])
    return f"{line}\n{figures.hint}" if figures and figures.hint else line


def html_line(title: str, figures: Figures | None, note: str) -> str:
    """The same as HTML that needs no style sheet of ours: it must survive in a saved notebook."""
    parts = [
        f'<span style="white-space:nowrap"><span style="opacity:.7">{escape(name)}</span> '
        f"<b>{escape(value)}</b></span>"
        for name, value in (figures.parts() if figures else [])
    ]
    if note:
        parts.append(f"<span>{escape(note)}</span>")
    body = " · ".join([f"<span>{escape(title)}</span>", *parts])
    if figures and figures.hint:
        body += f'<div class="jp-gpupool-CellHint">{escape(figures.hint)}</div>'
    return (
        '<div class="jp-gpupool-CellFigures" role="note" style="font-size:85%;'
        'border-left:3px solid var(--jp-brand-color1,#1976d2);padding:2px 8px">'
        f"{body}</div>"
    )


def amount(number: int) -> str:
    """Bytes for people: 1536 → ``1.5 KiB``."""
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


def _seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"
