"""What ends a measurement."""

from __future__ import annotations

from gpupool.client.errors import GpupoolError


class BenchError(GpupoolError):
    """The measurement could not be made; ``str()`` is one sentence."""
