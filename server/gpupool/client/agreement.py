"""What the machines of one pool should agree on: the version of gpupool, that of its protocol, and the time."""

from __future__ import annotations

from importlib import metadata
from typing import Final

#: Clocks may differ by so much; reports and logs of several machines are read side by side. Seconds.
MOST_SKEW: Final = 2.0
#: Of `gpupool.v1`: grows with every change by which a caller and a pool may misunderstand each other.
PROTOCOL_VERSION: Final = 1
#: Why a pool refuses a call of another one.
OTHER_VERSION: Final = "other-version"
#: Names it among the metadata of a call.
PROTOCOL_KEY: Final = "gpupool-protocol"


def own_version() -> str:
    """Of the gpupool that is installed here; ``unknown`` in a checkout that is not."""
    try:
        return metadata.version("jupyter-gpupool")
    except metadata.PackageNotFoundError:
        return "unknown"
