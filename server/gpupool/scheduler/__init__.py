"""Placement as a pure function: no clock, no socket, no database.

:func:`gpupool.scheduler.decide.decide` takes a :class:`~gpupool.scheduler.model.PoolView` and an
:class:`~gpupool.scheduler.model.Ask` and answers with a :class:`~gpupool.scheduler.model.Decision`.
"""

from gpupool.scheduler.decide import advise, decide
from gpupool.scheduler.model import (
    Ask,
    Decision,
    DeviceView,
    Held,
    Outcome,
    Parked,
    PlacedShare,
    PoolView,
    Quota,
)

__all__ = [
    "Ask",
    "Decision",
    "DeviceView",
    "Held",
    "Outcome",
    "Parked",
    "PlacedShare",
    "PoolView",
    "Quota",
    "advise",
    "decide",
]
