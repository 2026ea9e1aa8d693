"""Why a session's memory cannot be moved: the sentence of each obstacle's id, for every place that shows a session."""

from __future__ import annotations

from gpupool.sentences import param
from gpupool.sentences.render import catalogue
from gpupool.sentences.sentence import NOTHING, Sentence, say


def is_known(obstacle: str) -> bool:
    """Whether there are words for it."""
    return f"obstacle.{obstacle}" in catalogue()


def because(obstacle: str) -> Sentence:
    """What stands in the way, as what reads on after "because"; an id of a later version stands for itself."""
    return say(f"obstacle.{obstacle}") if is_known(obstacle) else say("obstacle", name=param.text(obstacle))


def parking(park_obstacle: str) -> Sentence:
    """What a person is told about moving a session's memory to the host; nothing when it can be moved."""
    return say("memory.stays-on-device", why=because(park_obstacle)) if park_obstacle else NOTHING


def moving(move_obstacle: str) -> Sentence:
    """What a person is told about taking a session to another node; nothing when it can go."""
    return say("memory.stays-in-node", why=because(move_obstacle)) if move_obstacle else NOTHING


def sentences(park_obstacle: str, move_obstacle: str) -> tuple[Sentence, ...]:
    """All that is to be said about a session's obstacles, in the order of how much it matters."""
    return tuple(said for said in (parking(park_obstacle), moving(move_obstacle)) if said)
