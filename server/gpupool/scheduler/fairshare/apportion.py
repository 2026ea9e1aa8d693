"""A whole number of milli-GPU divided by weights, nobody above what it wants.

By definition the amount is handed out one milli at a time, each to the claim with the smallest
``(given + 1) / weight`` that still wants one, ties by name (the method of D'Hondt, with ceilings). So the result
depends on no order, and a larger amount never gives anybody less, which rounding by largest remainder would.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One who takes part.

    Attributes:
        name: unique, decides ties.
        weight: above 0; only the ratios matter.
        wants: the most that it takes, milli-GPU.
    """

    name: str
    weight: int
    wants: int


def apportion(amount: int, claims: Iterable[Claim]) -> dict[str, int]:
    """What each claim gets of `amount`; the sum is the smaller of `amount` and all that is wanted."""
    waiting = list(claims)
    if sum(claim.wants for claim in waiting) <= amount:
        return {claim.name: claim.wants for claim in waiting}
    # Ratios with these weights differ by at least 1 / (weight * weight): scaled by that they compare as whole numbers.
    scale = max(claim.weight for claim in waiting) ** 2
    given: dict[str, int] = {}
    # A user that wants less than its part, the least first, leaves the difference to the others: water finds its level.
    waiting.sort(key=lambda claim: claim.wants * scale // claim.weight)
    left, weights = amount, sum(claim.weight for claim in waiting)
    satisfied = 0
    for claim in waiting:
        if claim.wants * weights > left * claim.weight:
            break
        given[claim.name] = claim.wants
        left -= claim.wants
        weights -= claim.weight
        satisfied += 1
    waiting = waiting[satisfied:]
    level = left
    for claim in waiting:
        given[claim.name] = level * claim.weight // weights
        left -= given[claim.name]
    # Fewer milli than claims are left: the definition itself.
    heap = [((given[claim.name] + 1) * scale // claim.weight, claim.name, claim) for claim in waiting]
    heapq.heapify(heap)
    while left:
        _, name, claim = heapq.heappop(heap)
        given[name] += 1
        left -= 1
        if given[name] < claim.wants:
            heapq.heappush(heap, ((given[name] + 1) * scale // claim.weight, name, claim))
    return given
