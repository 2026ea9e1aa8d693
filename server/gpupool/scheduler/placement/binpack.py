"""Fills devices, then nodes, before it begins the next: what cluster managers call binpack.

The published policy of that idea is GpuPacking; this is it, under the name that administrators look for.
"""

from __future__ import annotations

from gpupool.scheduler.placement.gpu_packing import GpuPacking


class Binpack(GpuPacking):
    """As :class:`GpuPacking`."""

    name = "binpack"
