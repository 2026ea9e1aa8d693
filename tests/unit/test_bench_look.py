"""`gpupool bench look`, small."""

from __future__ import annotations

from benchmarks.look import PER_NODE, WAITING, FullPool, measure, report


def test_the_pool_is_full_and_requests_wait() -> None:
    pool = FullPool(3)
    state = pool._machine.state
    assert len([lease for lease in state.leases.values() if lease.holds]) == 3 * PER_NODE
    assert len(state.requests) == WAITING
    pool.node_comes()
    assert len(state.requests) == WAITING - 1


def test_figures_of_both_pools() -> None:
    figures = measure(10)
    assert (figures["small_nodes"], figures["devices"]) == (2, 80)
    assert all(figures[size][step] > 0 for size in ("small", "large") for step in figures["times"])
    assert "80 devices" in report(figures)
