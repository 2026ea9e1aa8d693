"""Whose turn it is, between projects. Smaller goes first.

Level by level from the top of the tree, after KAI-Scheduler's queue order: who stays within its fair share, then who
is below what it deserves, then priority, then who has a share at all, then who has the smaller part of its share. The
ask's own size counts for its project only, not for the departments above, so that projects of one department are
compared with each other rather than by the sizes of their asks.
"""

from __future__ import annotations

from typing import Final

from gpupool.scheduler.fairshare.position import Position

#: Parts of a share are compared as whole numbers of this fraction.
_UNIT: Final = 1_000_000_000
Key = tuple[int | str, ...]


def level_key(position: Position, milli: int) -> Key:
    """How `position` compares with its siblings when `milli` more are asked in it."""
    after = position.allocated + milli
    below = position.allocated < position.fair_share
    # What it may have whatever others hold comes first; then who is below its share, and would be above it.
    turn = 0 if after <= position.entitled else 1 if below else 2
    share = max(position.deserved, position.fair_share)
    if position.limit is not None:
        share = min(share, position.limit)
    return (
        turn,
        int(after > position.deserved),
        -position.priority,
        int(share == 0),
        after * _UNIT // max(share, 1),
        position.allocated * _UNIT // max(share, 1),
        share,
        position.path,
    )


def order_key(leaf: Position, milli: int) -> Key:
    """The whole key of an ask of `milli` in `leaf`."""
    key = level_key(leaf, milli)
    position = leaf.parent
    while position is not None:
        if position.key is None:
            # One milli more: a department that is exactly at its share is not below it.
            position.key = level_key(position, 1)
        key = position.key + key
        position = position.parent
    return key
