"""Measurements that other packages bring: ``gpupool bench`` runs what the pool's side must not import."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final, cast

from gpupool.client.errors import GpupoolError

#: Entry points of this group are functions that take whether to print JSON and return an exit status.
GROUP: Final = "gpupool.bench"


class MeasurementMissing(GpupoolError):
    """No installed package has the measurement, or what it imports is not there."""


def measurement(name: str) -> Callable[[bool], int]:
    """The command of that name.

    Raises:
        MeasurementMissing: with one sentence that says what to install.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise MeasurementMissing(
            f"No installed package measures {name!r}: install jupyter-gpupool anew (entry point group {GROUP})."
        )
    try:
        return cast("Callable[[bool], int]", next(iter(found)).load())
    except ImportError as error:
        raise MeasurementMissing(
            f"To measure {name!r} {error.name or error} is needed: pip install 'jupyter-gpupool[jupyter,test]'."
        ) from error
