"""What a decision costs in a pool that is full: the pool's own machine in this process, without network, ledger and nodes.

Each step is measured in a small pool and in a large one. What depends on changes alone costs about the same in both. What walks
over everything that is held costs as many times more as the large pool is larger.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from gpupool.model import events
from gpupool.model.state import State
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.model.step import Ids
from gpupool.pool.model.timers import Timers

from benchmarks.results import machine, publish

PER_NODE: Final = 8
DEVICE_MIB: Final = 80 * 1024
#: The small pool has this part of the large one's nodes.
PART: Final = 5
WAITING: Final = 20
REPEATS: Final = 15
_STEPS: Final = {
    "ask_ms": "one more asks, and waits",
    "release_ms": "a lease ends",
    "node_ms": "a node comes",
}


class FullPool:
    """All devices are held, one lease on each; some wait for a whole node."""

    def __init__(self, nodes: int) -> None:
        names = itertools.count(1)
        ids = Ids(lambda: f"s{next(names)}", lambda: f"l{next(names)}", lambda: "00" * 32, itertools.count(1))
        self._machine = Machine(State(), Timers(), ids)
        self._now = 1000.0
        self._nodes = itertools.count()
        self._asks = itertools.count()
        self._handle(events.Restarted(self._now))
        self._now += 60.0
        for _ in range(nodes):
            self.node_comes()
        for _ in range(nodes * PER_NODE):
            self.ask(1)
        for _ in range(WAITING):
            self.ask(PER_NODE)
        self._leases = iter(list(self._machine.state.leases))

    def ask(self, count: int = PER_NODE) -> None:
        number = next(self._asks)
        user = f"user{number % 500}"
        self._handle(events.Requested(self._now, user, f"k{number}", 1000, None, count, wait=None))

    def release(self) -> None:
        self._handle(events.Released(self._now, next(self._leases), "exit", close_session=True))

    def node_comes(self) -> None:
        number = next(self._nodes)
        devices = tuple(
            events.OfferedDevice(place, "Bench GPU", f"{number:028x}{place:04x}", False, DEVICE_MIB, "")
            for place in range(PER_NODE)
        )
        self._handle(events.NodeHello(self._now, f"n{number:05d}", number + 1, "run", devices, ()))

    def _handle(self, event: events.Event) -> None:
        self._machine.handle(event)
        self._machine.state.commit()


def measure(nodes: int) -> dict[str, Any]:
    """Medians of processor time in a pool of so many nodes, and in one of a fifth."""
    sizes = (max(2, nodes // PART), nodes)
    figures: dict[str, Any] = {
        "nodes": nodes, "devices": nodes * PER_NODE, "small_nodes": sizes[0], "waiting": WAITING, "machine": machine()
    }  # fmt: skip
    for name, size in zip(("small", "large"), sizes, strict=True):
        pool = FullPool(size)
        figures[name] = {
            "ask_ms": _median_ms(pool.ask),
            "release_ms": _median_ms(pool.release),
            "node_ms": _median_ms(pool.node_comes),
        }
    figures["times"] = {step: figures["large"][step] / figures["small"][step] for step in _STEPS}
    return figures


def _median_ms(step: Callable[[], None]) -> float:
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        step()
        found.append(1000.0 * (time.process_time() - began))
    return statistics.median(found)


def main(json: bool, nodes: int) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    return publish("look", lambda: measure(nodes), report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people."""
    small, large = figures["small_nodes"] * PER_NODE, figures["devices"]
    heads = (f"{small} devices", f"{large} devices", "times")
    lines = [
        f"processor time of one decision; all devices are held, {figures['waiting']} requests wait",
        f"{'':28}" + "".join(f"{head:>16}" for head in heads),
    ]
    for step, meaning in _STEPS.items():
        lines.append(
            f"{meaning:28}{figures['small'][step]:13.2f} ms{figures['large'][step]:13.2f} ms"
            f"{figures['times'][step]:16.1f}"
        )
    return "\n".join(lines) + "\n"
