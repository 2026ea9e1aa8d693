"""What several commands say to people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpupool.cli.common import exits, show
from gpupool.client.types import QueuePlace

#: Digits of a session's id in lists.
SHORTENED: Final = 12
NO_GPU: Final = "the pool has no GPU; start a node: gpupool node start"


def say_queued(place: QueuePlace) -> None:
    """Tells on standard error, so that standard output stays what was asked for."""
    about = "" if place.eta_seconds is None else f", about {show.seconds(place.eta_seconds)}"
    where = f" at place {place.place}" if place.place else ""
    exits.say(f"waiting{where}{about}: {place.reason}")


def begun_with(sessions: Iterable[str], said: str) -> str | None:
    """The one id of a session that is `said`, whole or as lists shorten it; None: there is none, or more than one."""
    found = [one for one in sessions if len(said) >= SHORTENED and one.startswith(said)]
    return found[0] if len(found) == 1 else None
