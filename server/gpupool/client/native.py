"""Where the native libraries and programs of this package are."""

from __future__ import annotations

import os
from pathlib import Path

from gpupool.client.errors import RuntimeMissingError

NATIVE_VARIABLE = "GPUPOOL_NATIVE_DIR"


def native_directory() -> Path:
    """The folder that holds ``bin``, ``client``, ``softgpu`` and ``compat``; it need not exist."""
    named = os.environ.get(NATIVE_VARIABLE)
    return Path(named).resolve() if named else Path(__file__).resolve().parents[1] / "_native"


def native_file(*parts: str) -> Path:
    """A file in :func:`native_directory`. Raises RuntimeMissingError when it is not installed."""
    path = native_directory().joinpath(*parts)
    if not path.exists():
        raise RuntimeMissingError(
            f"{path} is not there: this installation of jupyter-gpupool has no native parts. "
            "Install a wheel for this platform; in a source checkout run `make build`."
        )
    return path
