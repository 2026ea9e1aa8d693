"""What the machines of one pool should agree on: the version of gpupool, and the time."""

from __future__ import annotations

from importlib import metadata
from typing import Final

#: Clocks may differ by so much; reports and logs of several machines are read side by side. Seconds.
MOST_SKEW: Final = 2.0


def own_version() -> str:
    """Of the gpupool that is installed here; ``unknown`` in a checkout that is not."""
    try:
        return metadata.version("jupyter-gpupool")
    except metadata.PackageNotFoundError:
        return "unknown"
