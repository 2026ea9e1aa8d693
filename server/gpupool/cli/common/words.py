"""What several commands say to people."""

from __future__ import annotations

from typing import Final

from gpupool.cli.common import exits, show
from gpupool.client.types import QueuePlace

NO_GPU: Final = "the pool has no GPU; start a node: gpupool node start"


def say_queued(place: QueuePlace) -> None:
    """Tells on standard error, so that standard output stays what was asked for."""
    about = "" if place.eta_seconds is None else f", about {show.seconds(place.eta_seconds)}"
    exits.say(f"waiting at place {place.place}{about}: {place.reason}")
