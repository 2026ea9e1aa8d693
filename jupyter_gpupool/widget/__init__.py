"""A live view of one kernel's GPU share, for a notebook."""

from __future__ import annotations

from jupyter_gpupool.widget.usage import GpuUsage, gpupool_widget

__all__ = ["GpuUsage", "gpupool_widget"]
