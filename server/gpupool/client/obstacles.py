"""Why a session's memory cannot be moved: one sentence per obstacle id, for every place that shows a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What stands in the way; each reads on after "because".
OBSTACLES: Final[Mapping[str, str]] = {
    "managed": "a module of it has `__managed__` variables, which the driver's checkpoint does not carry",
    "ipc": "it shares memory or events with another process",
    "old-driver": "the driver of its node cannot move memory (570 or later on x86-64 is needed)",
    "mps": "its worker is a client of MPS, which the driver's checkpoint is not known to carry",
    "graphs": "it holds a graph, or has made an allocation node in one",
    "arrays": "it holds arrays, or texture or surface objects",
    "contexts": "it has a green context, or has asked for the resources that they are made of",
    "global-addresses": "it was told the address of a module's variable, which may be another one there",
    "working": "a kernel of it is stopped in the middle of its work, and goes on with the next lease",
    "capture": "a stream is being captured",
    "links": "a link of machine code is under way",
    "other": "it holds something that cannot be carried over",
}


def because(obstacle: str) -> str:
    """The half sentence for ``obstacle``; an id of a later version stands for itself."""
    return OBSTACLES.get(obstacle, f"of {obstacle!r}")


def parking_sentence(park_obstacle: str) -> str:
    """What a person is told about moving a session's memory to the host; empty when it can be moved."""
    if not park_obstacle:
        return ""
    return f"Its memory stays on its device while it is parked, because {because(park_obstacle)}."


def moving_sentence(move_obstacle: str) -> str:
    """What a person is told about taking a session to another node; empty when it can go."""
    if not move_obstacle:
        return ""
    return f"It can only go on in the node where it is, because {because(move_obstacle)}."


def sentences(park_obstacle: str, move_obstacle: str) -> tuple[str, ...]:
    """All that is to be said about a session's obstacles, in the order of how much it matters."""
    found = (parking_sentence(park_obstacle), moving_sentence(move_obstacle))
    return tuple(sentence for sentence in found if sentence)
