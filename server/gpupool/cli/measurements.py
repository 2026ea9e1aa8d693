"""Where `gpupool bench` has its measurements from: `benchmarks/` of a checkout, which no installation brings."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from gpupool.client.errors import GpupoolError

#: The package in the checkout.
PACKAGE: Final = "benchmarks"
_HOW: Final = (
    "`gpupool bench` runs from a checkout, and this installation has none of its measurements: "
    "git clone https://github.com/jupyter-gpupool/jupyter-gpupool && cd jupyter-gpupool && make build, "
    "then .venv/bin/gpupool bench"
)


class MeasurementMissingError(GpupoolError):
    """There is no checkout, or what a measurement imports is not installed."""


def measurement(name: str) -> Any:
    """The module `benchmarks.<name>`, which has a `main` that returns an exit status.

    Raises:
        MeasurementMissingError: with one sentence that says how to get it.
    """
    try:
        return import_module(f"{PACKAGE}.{name}")
    except ImportError as error:
        missing = error.name or str(error)
        if missing.partition(".")[0] == PACKAGE:
            raise MeasurementMissingError(f"{_HOW} {name.partition('.')[0]}.") from error
        raise MeasurementMissingError(
            f"To measure {name.partition('.')[0]!r} {missing} is needed: pip install 'jupyter-gpupool[jupyter,test]'."
        ) from error
