"""The line that a ``%%gpu`` cell ends with: what the cell used, as text, as HTML and as figures.

All three are saved with the notebook. The HTML needs no style sheet, no script and no extension, and still reads well
when it is sanitized (notebooks that are not trusted) or converted; the figures are for the front end and for programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from gpupool.amounts import amount
from gpupool.client.hints import hint
from gpupool.client.runtime import Counters

from jupyter_gpupool.kernel.out_of_memory import OutOfMemory

#: The figures of a cell as JSON; see :func:`bundle`.
MIME_TYPE: Final = "application/vnd.gpupool.cell+json"
#: Of that JSON. A reader takes what it knows of a newer one; a field never changes its meaning.
SCHEMA_VERSION: Final = 1
#: Kinds of calls that waited, at most so many are told.
_MOST_NAMES: Final = 8


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
        asks_by_name: name of the call → (how often it waited, seconds), those that waited longest first.
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
    asks_by_name: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def between(cls, before: Counters, after: Counters, wall_seconds: float) -> Figures:
        """The difference of two readings of the process's counters."""
        device_seconds = memory_peak = None
        # A first attach starts a worker whose counters begin at zero. A worker that was attached already and did not answer,
        # because much of the program's work was before the question, has counted nobody knows how much.
        if after.worker is not None and (before.worker is not None or before.state != "attached"):
            started = before.worker.device_seconds if before.worker is not None else 0.0
            device_seconds = max(0.0, after.worker.device_seconds - started)
            memory_peak = sum(after.worker.memory_peak)
            if memory_peak == 0 and after.refused_memory is not None:
                memory_peak = None  # beside what was asked for in vain it says nothing
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
            asks_by_name=_longest(before.asks_by_name, after.asks_by_name),
        )

    def parts(self) -> list[tuple[str, str]]:
        """(name, value) pairs in the order in which they are shown."""
        parts = []
        if self.device_seconds is not None:
            parts.append(("device time", f"{_seconds(self.device_seconds)} of {_seconds(self.wall_seconds)}"))
        else:
            parts.append(("wall time", _seconds(self.wall_seconds)))
        parts.append(("calls", f"{self.calls:,}"))
        parts.append(("waits for the GPU", f"{self.asks:,} ({_seconds(self.ask_seconds)})"))
        parts.append(("to device", amount(self.bytes_to_device)))
        parts.append(("from device", amount(self.bytes_from_device)))
        if self.memory_peak_bytes is not None:
            parts.append(("peak memory", amount(self.memory_peak_bytes)))
        return parts

    def shortest(self) -> list[str]:
        """What is read at a glance; the rest is in :meth:`parts`."""
        told = [f"{name} {value}" for name, value in self.parts()[:1]]
        if self.memory_peak_bytes is not None:
            told.append(f"peak memory {amount(self.memory_peak_bytes)}")
        told.append(f"{self.asks:,} wait{'' if self.asks == 1 else 's'} for the GPU")
        return told

    def slowest(self) -> list[tuple[str, str]]:
        """The calls that waited longest, (name, how often and how long)."""
        return [
            (f"waited for {name.removesuffix('_v2')}", f"{count:,} × ({_seconds(seconds)})")
            for name, (count, seconds) in self.asks_by_name.items()
        ]


def bundle(
    title: str, figures: Figures | None, note: str, trouble: OutOfMemory | None = None
) -> dict[str, Any]:
    """The output of a cell, by MIME type."""
    return {
        "text/plain": text_line(title, figures, note, trouble),
        "text/html": html_line(title, figures, note, trouble),
        MIME_TYPE: as_json(title, figures, note, trouble),
    }


def as_json(
    title: str, figures: Figures | None, note: str, trouble: OutOfMemory | None = None
) -> dict[str, Any]:
    """Everything that is known, in plain units: seconds, bytes, counts.

    ``figures`` null: the cell never reached a GPU, ``note`` says why. Values that the worker did not tell are null.
    """
    told = None
    if figures is not None:
        told = {
            "wall_seconds": figures.wall_seconds,
            "device_seconds": figures.device_seconds,
            "calls": figures.calls,
            "blocking_round_trips": figures.asks,
            "blocking_seconds": figures.ask_seconds,
            "round_trips_by_call": [
                {"call": name, "count": count, "seconds": seconds}
                for name, (count, seconds) in figures.asks_by_name.items()
            ],
            "bytes_to_device": figures.bytes_to_device,
            "bytes_from_device": figures.bytes_from_device,
            "memory_peak_bytes": figures.memory_peak_bytes,
        }
    hint_text = figures.hint if figures is not None else None
    return {
        "version": SCHEMA_VERSION,
        "title": title,
        "figures": told,
        "hint": hint_text,
        "note": note or None,
        "out_of_memory": trouble.view() if trouble is not None else None,
    }


def text_line(title: str, figures: Figures | None, note: str, trouble: OutOfMemory | None = None) -> str:
    """One line of plain text, and one each for what was lacking and for a hint."""
    parts = [f"{name} {value}" for name, value in (figures.parts() if figures else [])]
    line = " · ".join([title, *parts, *([note] if note else [])])
    return "\n".join([line, *_further(figures, trouble)])


def _further(figures: Figures | None, trouble: OutOfMemory | None) -> list[str]:
    said = [trouble.text()] if trouble is not None else []
    return [*said, *([figures.hint] if figures is not None and figures.hint else [])]


def html_line(title: str, figures: Figures | None, note: str, trouble: OutOfMemory | None = None) -> str:
    """The same as HTML: one line, with all figures below it when it is opened.

    Only what survives JupyterLab's sanitizer, and nothing that means something by its colour alone.
    """
    if figures is None:
        line = " · ".join([title, note] if note else [title])
        return "".join(f"<div>{escape(text)}</div>" for text in (line, *_further(None, trouble)))
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:normal">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in [*figures.parts(), *figures.slowest()]
    )
    summary = escape(" · ".join([title, *figures.shortest()]))
    said = "".join(f"<div>{escape(text)}</div>" for text in (note, *_further(figures, trouble)) if text)
    return (
        '<div style="font-size:85%;padding-left:8px;border-left:3px solid var(--jp-brand-color1, currentColor)">'
        f"<details><summary>{summary}</summary>"
        f'<table aria-label="What the cell used of its GPU">{rows}</table></details>{said}</div>'
    )


def _seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def _longest(
    before: Mapping[str, tuple[int, float]], after: Mapping[str, tuple[int, float]]
) -> dict[str, tuple[int, float]]:
    """What was added between two readings, the longest waits first."""
    found = {}
    for name, (count, seconds) in after.items():
        then, then_seconds = before.get(name, (0, 0.0))
        if count > then:
            found[name] = count - then, max(0.0, seconds - then_seconds)
    longest = sorted(found.items(), key=lambda item: (-item[1][1], -item[1][0], item[0]))
    return dict(longest[:_MOST_NAMES])
