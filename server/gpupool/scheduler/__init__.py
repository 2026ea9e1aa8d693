"""Placement as a pure function: no clock, no socket, no database.

:func:`gpupool.scheduler.decide.decide` takes a :class:`~gpupool.scheduler.pool_view.PoolView` and an
:class:`~gpupool.scheduler.model.Request` and answers with a :class:`~gpupool.scheduler.model.Decision`.
"""

from gpupool.scheduler.decide import advise, decide
from gpupool.scheduler.model import Decision, DeviceView, Held, Outcome, Parked, PlacedShare, Quota, Request
from gpupool.scheduler.pool_view import PoolView

__all__ = [
    "Decision",
    "DeviceView",
    "Held",
    "Outcome",
    "Parked",
    "PlacedShare",
    "PoolView",
    "Quota",
    "Request",
    "advise",
    "decide",
]
