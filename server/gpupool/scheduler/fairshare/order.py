"""Whose turn it is, between projects. Smaller goes first.

First come requests that stay within what is deserved, then those that stay within fair shares, each on all levels of the
tree: whatever others hold, these may have it. Then level by level from the top, after KAI-Scheduler's queue order: who
is within its fair share, who is below what it deserves, priority, who has a share at all, who has the smaller part of
its share. There the request's own size counts for its project only, not for the departments above, so that projects of one
department are compared with each other rather than by the sizes of their requests.
"""

from __future__ import annotations

from typing import Final

from gpupool.scheduler.fairshare.position import Position

#: Parts of a share are compared as whole numbers of this fraction.
_UNIT: Final = 1_000_000_000
Key = tuple[int | str, ...]


def turn(position: Position, milli: int) -> int:
    """0: it may have `milli` more whatever others hold; 1: it is below its share now; 2: it has its share."""
    if position.allocated + milli <= position.entitled:
        return 0
    return 1 if position.allocated < position.fair_share else 2


def level_key(position: Position, milli: int) -> Key:
    """How `position` compares with its siblings when `milli` more are asked in it."""
    after = position.allocated + milli
    share = position.entitled
    if position.limit is not None:
        share = min(share, position.limit)
    return (
        turn(position, milli),
        int(after > position.deserved),
        -position.priority,
        int(share == 0),
        after * _UNIT // max(share, 1),
        position.allocated * _UNIT // max(share, 1),
        share,
        position.path,
    )


def order_key(leaf: Position, milli: int) -> Key:
    """The whole key of a request of `milli` in `leaf`."""
    key = level_key(leaf, milli)
    latest = turn(leaf, milli)
    undeserved = leaf.allocated + milli > leaf.deserved
    position = leaf.parent
    while position is not None:
        if position.key is None:
            # One milli more: a department that is exactly at its share is not below it.
            position.key = level_key(position, 1)
        key = position.key + key
        latest = max(latest, turn(position, milli))
        undeserved = undeserved or position.allocated + milli > position.deserved
        position = position.parent
    return (latest, int(undeserved), *key)
