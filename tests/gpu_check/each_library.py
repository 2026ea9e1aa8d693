"""Tries libraries one after the other: one that is missing or fails hides no other."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import Any


def numbers(*values: Any) -> list[float]:
    """Of tensors with one element each, or of plain numbers."""
    plain = (value.detach() if hasattr(value, "detach") else value for value in values)
    return [round(float(value), 5) for value in plain]


def tried(parts: Sequence[Callable[[], list[float]]], begin: Callable[[], object]) -> dict[str, Any]:
    """What a program prints of its parts, each named after the library that it needs; ``begin`` is called before each."""
    result: dict[str, Any] = {}
    figures: dict[str, float] = {}
    problems: dict[str, str] = {}
    for part in parts:
        name = part.__name__
        if importlib.util.find_spec(name) is None:
            result[name] = "missing"
            continue
        began = time.monotonic()
        begin()
        try:
            result[name] = part()
        except Exception as error:
            problems[name] = f"{type(error).__name__}: {error}"[:600]
            result[name] = "failed"
        figures[f"{name}, s"] = round(time.monotonic() - began, 2)
    return {"result": result, "figures": figures, "problems": problems}
