"""The policies by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpupool.scheduler.placement.best_fit import BestFit
from gpupool.scheduler.placement.binpack import Binpack
from gpupool.scheduler.placement.dot_product import DotProduct
from gpupool.scheduler.placement.fgd import Fgd
from gpupool.scheduler.placement.gpu_packing import GpuPacking
from gpupool.scheduler.placement.model import Demand
from gpupool.scheduler.placement.policy import Policy
from gpupool.scheduler.placement.random_fit import RandomFit
from gpupool.scheduler.placement.shadow_price import ShadowPrice
from gpupool.scheduler.placement.spread import Spread

DEFAULT_POLICY: Final = ShadowPrice.name
POLICIES: Final = tuple(
    policy.name for policy in (ShadowPrice, Fgd, BestFit, Binpack, GpuPacking, DotProduct, Spread, RandomFit)
)


def policy_named(name: str, *, counts: Mapping[Demand, int] | None = None, seed: int = 0) -> Policy:
    """A new policy.

    Args:
        name: one of :data:`POLICIES`.
        counts: the distribution of demands, for policies that are given one beforehand (``fgd``).
        seed: for policies that choose by chance (``random``).

    Raises:
        ValueError: there is no such policy.
    """
    if name == Fgd.name:
        return Fgd(counts or {})
    if name == RandomFit.name:
        return RandomFit(seed)
    for policy in (ShadowPrice, BestFit, Binpack, GpuPacking, DotProduct, Spread):
        if policy.name == name:
            return policy()
    raise ValueError(f"{name!r} is not a placement policy: {', '.join(POLICIES)}")
