"""What can go wrong with kernel packs, in words for the user."""

from __future__ import annotations

from gpupool.client.errors import GpupoolError


class PackError(GpupoolError):
    """A kernel pack cannot be made or read; the sentence says why."""
