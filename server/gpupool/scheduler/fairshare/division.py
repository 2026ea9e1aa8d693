"""Fair shares: what each project is entitled to of the whole pool, as things stand.

From the top of the tree down, children divide their parent's fair share: first everybody gets the smallest of what
it deserves, its limit and what it wants; the rest goes to those who want more, by priority and, inside a priority, by
weight. A project that has used more than its part lately weighs less: with ``w`` its part of the weights and ``u`` its
part of the pool over time, ``max(0, 2w - u)`` (KAI-Scheduler, time-based fair share, with k = 1).

Two things are on purpose not as in KAI-Scheduler. Amounts are milli-GPU, so nothing is rounded to whole GPUs; and the
weights are taken once among all who want more, not anew in each of its rounds: then a larger pool never gives anybody
less, and the result can be said without telling how it is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpupool.scheduler.fairshare.apportion import Claim, apportion
from gpupool.scheduler.fairshare.tree import ProjectTree

#: Usage counts in millionths, so that weights stay whole numbers.
_USAGE_UNIT: Final = 1_000_000
_NO_USAGE: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Wish:
    path: str
    weight: int
    priority: int
    usage: int
    more: int


def fair_shares(
    tree: ProjectTree, capacity: int, requested: Mapping[str, int], usage: Mapping[str, float] = _NO_USAGE
) -> dict[str, int]:
    """Milli-GPU of every path of the tree.

    The shares of siblings sum up to the smaller of their parent's share and what they want within their limits.

    Args:
        tree: the projects.
        capacity: milli-GPU of the pool.
        requested: milli-GPU that each leaf wants in all, held and waiting.
        usage: of each leaf, what it used lately as a part of the pool, see :func:`..usage.part_of_pool`.
    """
    wanted: dict[str, int] = {}
    used: dict[str, int] = {}
    for path in reversed(tree.paths):
        children = tree.children(path)
        limit = tree.limit(path)
        if children:
            total = sum(wanted[child] for child in children)
            used[path] = sum(used[child] for child in children)
        else:
            total = requested.get(path, 0)
            used[path] = round(max(0.0, usage.get(path, 0.0)) * _USAGE_UNIT)
        wanted[path] = total if limit is None else min(total, limit)
    shares = {"": capacity}
    for parent in ("", *tree.paths):
        children = tree.children(parent)
        sure = {child: min(tree.deserved(child, capacity), wanted[child]) for child in children}
        wishes = [
            _Wish(path, tree[path].weight, tree[path].priority, used[path], wanted[path] - sure[path])
            for path in children
            if wanted[path] > sure[path]
        ]
        over = _over_quota(shares[parent] - sum(sure.values()), wishes)
        shares.update({child: sure[child] + over.get(child, 0) for child in children})
    del shares[""]
    return shares


def _over_quota(amount: int, wishes: Iterable[_Wish]) -> dict[str, int]:
    """What each gets of what nobody deserves: by priority; those of weight 0 after all others."""
    given: dict[str, int] = {}
    buckets: dict[tuple[bool, int], list[_Wish]] = {}
    for wish in wishes:
        buckets.setdefault((wish.weight == 0, -wish.priority), []).append(wish)
    for _, bucket in sorted(buckets.items()):
        if amount <= 0:
            break
        part = _by_weight(amount, bucket)
        amount -= sum(part.values())
        given |= part
    return given


def _by_weight(amount: int, bucket: list[_Wish]) -> dict[str, int]:
    """One priority. Who used up its part lately gets what the others of the bucket leave."""
    given: dict[str, int] = {}
    while amount > 0 and bucket:
        total = sum(wish.weight for wish in bucket)
        weights = {wish.path: max(0, 2 * wish.weight * _USAGE_UNIT - wish.usage * total) for wish in bucket}
        if not any(weights.values()):
            weights = {wish.path: wish.weight or 1 for wish in bucket}
        served = [wish for wish in bucket if weights[wish.path]]
        part = apportion(amount, [Claim(wish.path, weights[wish.path], wish.more) for wish in served])
        amount -= sum(part.values())
        given |= part
        bucket = [wish for wish in bucket if not weights[wish.path]]
    return given
