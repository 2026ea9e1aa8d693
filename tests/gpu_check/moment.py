"""What a program needs that runs beside others: the moment at which all begin, and what it has used of the device."""

from __future__ import annotations

import ctypes
import json
import time
from pathlib import Path
from typing import Final

#: The counters of a program with many kinds of calls are some KiB of text.
_COUNTERS_BYTES: Final = 1 << 18


def begin_together(ready: Path, start: Path) -> tuple[float, bool]:
    """Writes ``ready``, and returns at the moment that ``start`` then names: the moment, and whether it was still to come."""
    ready.touch()
    while not start.exists():
        time.sleep(0.001)
    begin = float(start.read_text())
    early = time.time() < begin
    while time.time() < begin:
        time.sleep(0.001)
    return begin, early


def device_seconds() -> float | None:
    """What the worker has counted for this process's session; None: there is no worker, or it does not say so."""
    counters = getattr(ctypes.CDLL("libcuda.so.1"), "gpupool_counters", None)
    if counters is None:
        return None
    text = ctypes.create_string_buffer(_COUNTERS_BYTES)
    counters(text, ctypes.c_size_t(_COUNTERS_BYTES), 0)
    worker = json.loads(text.value).get("worker")
    return None if worker is None else float(worker["device_seconds"])


def since(before: float | None) -> float | None:
    """Device seconds since then, where both are known."""
    now = device_seconds()
    return None if now is None or before is None else round(now - before, 3)
