"""Nodes whose ports are all taken: no other worker starts there, and those that run there go on.

A worker listens on a port of its own for as long as it lives, also while its session is parked.
"""

from __future__ import annotations

import numpy as np

from gpupool.scheduler.candidates import Candidates
from gpupool.scheduler.placement.policy import Mask
from gpupool.scheduler.pool_view import PoolView


def rows_with_ports(pool: PoolView) -> Mask | None:
    """Per row: whether another worker finds a port on that node; None: on all of them."""
    if not pool.without_port:
        return None
    fleet = pool.fleet
    rows: Mask = np.ones(len(fleet.nodes), np.bool_)
    for node in pool.without_port.keys() & fleet.rows.keys():
        rows[fleet.rows[node]] = False
    return rows


def with_ports(pool: PoolView, candidates: Candidates) -> Candidates:
    """Those of the candidates on whose nodes another worker finds a port."""
    rows = rows_with_ports(pool)
    if rows is None:
        return candidates
    devices: Mask = candidates.devices & rows[:, None]
    return Candidates(candidates.models, devices, devices.sum(axis=1))
