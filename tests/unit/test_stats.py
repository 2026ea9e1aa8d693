"""The pool in figures."""

from __future__ import annotations

from gpupool.model.state import DeviceRecord, RequestRecord, State
from gpupool.pool.model.timers import Timers
from gpupool.pool.reporting.stats import present
from gpupool.shares import milli_of_mib, usable_mib

from tests.support.instructions_counted import instructions_of

SIZES = (8192, 16384)


def pool_of(devices: int, requests: int) -> State:
    state = State()
    for number in range(devices):
        name = f"node1/{number}"
        state.devices[name] = DeviceRecord(
            name, "node1", number, "GPU", f"u{number}", True, SIZES[number % 2], "soft"
        )
    for number in range(requests):
        name = f"r{number}"
        state.requests[name] = RequestRecord(
            name, number, "ann", name, None, 1000, 1, "", "", "", 0.0, None, 0.0, False
        )
    state.commit()
    return state


def test_what_requests_for_memory_wait_for_is_counted_on_the_largest_device() -> None:
    found = present(pool_of(2, 3), Timers(), 10.0)
    assert found.waiting_milli == 3 * milli_of_mib(1000, usable_mib(SIZES[1]))


def test_the_cost_is_that_of_devices_and_requests_and_not_of_one_times_the_other() -> None:
    def cost(devices: int, requests: int) -> int:
        state = pool_of(devices, requests)
        return instructions_of(lambda: present(state, Timers(), 10.0))

    base = cost(100, 1)
    assert cost(100, 101) - base < 2 * (cost(10, 101) - cost(10, 1))
