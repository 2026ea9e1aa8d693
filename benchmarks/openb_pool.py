"""The same arrivals through the pool's own scheduler: its records, its view of them, its decision with explanation.

What is measured is a decision as the pool makes it: the view brought up to date after the last grant, `decide`, and the grant
written into the records. The pool does not look at CPU and memory of nodes, and requests without devices are left out. A request
that finds no room is explained, with helps, and dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpupool.model.state import DeviceRecord, LeaseRecord, NodeRecord, State
from gpupool.pool.model.live_view import LiveView
from gpupool.pool.model.timers import Timers
from gpupool.scheduler import Outcome, PlacedShare, Request, decide
from gpupool.scheduler.placement import Demand, NodeSpec, Policy

#: Memory of every device, MiB: the pool counts it, the trace does not name it.
_TOTAL_MIB = 32_768
#: The trace names no users.
_USERS = 200


@dataclass(frozen=True, slots=True)
class PoolRun:
    """One order of arrivals through the pool.

    Attributes:
        allocated: percent of the milli-GPU of all devices.
        granted_ns: processor time of each decision that granted, learning included.
        queued_ns: of each that did not, with everything that would help.
    """

    allocated: float
    granted_ns: list[int]
    queued_ns: list[int]


def run_through_pool(specs: Sequence[NodeSpec], policy: str, demands: Sequence[Demand]) -> PoolRun:
    """Lets ``requests`` arrive one after the other at a pool that begins empty."""
    state = _state(specs)
    view = LiveView(state, Timers(), policy)
    learner: Policy = view.policy
    granted: list[int] = []
    queued: list[int] = []
    clock = time.thread_time_ns
    view.at(0.0)
    taken = 0
    for number, demand in enumerate(_of_devices(demands)):
        user = f"user{number % _USERS}"
        request = Request(user, demand.milli, count=demand.count, nodes="one")
        begun = clock()
        learner.observe(Demand(demand.milli, count=demand.count))
        decision = decide(view.at(0.0), request)
        if decision.outcome is Outcome.GRANT:
            state.leases[f"l{number}"] = _lease(number, user, decision.shares)
            granted.append(clock() - begun)
            taken += sum(share.milli for share in decision.shares)
        else:
            queued.append(clock() - begun)
        state.commit()
    return PoolRun(100.0 * taken / (1000 * len(state.devices)), granted, queued)


def _of_devices(demands: Sequence[Demand]) -> Iterator[Demand]:
    return (demand for demand in demands if demand.count)


def _state(specs: Sequence[NodeSpec]) -> State:
    state = State()
    for node in specs:
        state.nodes[node.id] = NodeRecord(node.id, connection=1)
        for ordinal, device in enumerate(node.devices):
            name = f"{node.id}/{ordinal}"
            state.devices[name] = DeviceRecord(
                name, node.id, ordinal, device.model, name, False, _TOTAL_MIB, ""
            )
    state.commit()
    return state


def _lease(number: int, user: str, shares: tuple[PlacedShare, ...]) -> LeaseRecord:
    name = f"l{number}"
    return LeaseRecord(name, f"s{number}", user, name, "", "", 1, shares, "attached", 0.0, True)
