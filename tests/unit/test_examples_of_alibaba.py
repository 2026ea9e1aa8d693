"""What Alibaba Cloud's text on GPU sharing in Kubernetes promises, as this pool keeps it.

There a node is labelled for one way of sharing (``default``, ``cgpu``, ``share``) and one way of placing (``binpack``,
``spread``), pods ask for GiB of memory, and a pod that asks for several GPUs gets an even part of each.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpupool.scheduler import Decision, DeviceView, Outcome, PoolView, Request, decide
from gpupool.scheduler.fleet import Fleet
from gpupool.scheduler.placement import policy_named
from gpupool.scheduler.snapshot import Present, Snapshot

GIB = 1024
#: A T4 is sold with 16 GiB; what shares are cut from is a little less.
T4_MIB = 16 * GIB


def t4(name: str, **more: object) -> DeviceView:
    return DeviceView(name, name.split("/")[0], T4_MIB, kind="Tesla T4", **more)  # type: ignore[arg-type]


def pool(policy: str, *devices: DeviceView) -> PoolView:
    return PoolView(Snapshot(Present(devices), Fleet(devices, policy_named(policy))))


def granted(view: PoolView, request: Request) -> Decision:
    decision = decide(view, request)
    assert decision.outcome is Outcome.GRANT, decision.explanation
    return decision


def devices_of_pods(policy: str, count: int) -> list[str]:
    """Where pods of 4 GiB go, one after the other, on two nodes of two GPUs."""
    view, found = pool(policy, *(t4(f"{node}/{n}") for node in "ab" for n in range(2))), []
    for number in range(count):
        (share,) = granted(view, Request(f"pod{number}", mib=4 * GIB)).shares
        view = view.taking((share,), f"pod{number}", f"l{number}")
        found.append(share.device_id)
    return found


def test_pods_of_5_and_of_10_gib_share_one_gpu_and_each_has_what_it_asked_for():
    view = pool("best_fit", t4("a/0"), t4("a/1"))
    first = granted(view, Request("pod1", mib=5 * GIB)).shares
    view = view.taking(first, "pod1", "l1")
    second = granted(view, Request("pod2", mib=10 * GIB)).shares
    assert [share.device_id for share in (*first, *second)] == ["a/0", "a/0"]
    assert [share.mib for share in (*first, *second)] == [5 * GIB, 10 * GIB]


def test_of_two_gpus_with_enough_together_neither_is_enough():
    """A total that fits is not enough: a single device must have the room."""
    view = pool("best_fit", t4("a/0"), t4("a/1"))
    for name in ("a/0", "a/1"):
        share = granted(view, Request("pod", mib=10 * GIB)).shares[0]
        view = view.taking((replace(share, device_id=name),), "pod", f"on {name}")
    decision = decide(view, Request("pod3", mib=10 * GIB))
    assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "full")
    (smaller,) = [help.request for help in decision.helps if help.action == "smaller"]
    assert smaller is not None
    assert granted(view, smaller).shares


@pytest.mark.parametrize("policy", ["binpack", "best_fit", "gpu_packing", "fgd", "shadow_price"])
def test_binpack_fills_one_gpu_before_the_next(policy: str):
    assert devices_of_pods(policy, 4) == ["a/0", "a/0", "a/0", "a/1"]


def test_spread_uses_all_gpus_of_all_nodes_first():
    assert sorted(devices_of_pods("spread", 4)) == ["a/0", "a/1", "b/0", "b/1"]


def test_a_pod_that_asks_for_several_gpus_gets_an_even_part_of_each():
    shares = granted(
        pool("best_fit", *(t4(f"a/{n}") for n in range(3))), Request("pod", mib=3 * GIB, count=3)
    ).shares
    assert [(share.device_id, share.mib) for share in shares] == [(f"a/{n}", 3 * GIB) for n in range(3)]
    assert len({share.milli for share in shares}) == 1


def test_whole_gpus_beside_shared_ones():
    """`default` nodes give whole GPUs only; a whole GPU elsewhere is one that nobody shares."""
    view = pool("best_fit", t4("a/0", sharing="whole"), t4("b/0"))
    part = granted(view, Request("pod1", mib=4 * GIB)).shares
    assert part[0].device_id == "b/0"
    view = view.taking(part, "pod1", "l1")
    assert granted(view, Request("pod2", 1000)).shares[0].device_id == "a/0"
    view = view.taking(granted(view, Request("pod2", 1000)).shares, "pod2", "l2")
    assert decide(view, Request("pod3", 1000)).outcome is Outcome.QUEUE


def test_sharing_without_memory_isolation_where_the_node_says_so():
    """`share` nodes: what a pod asks for counts for the scheduler, and each may use all the memory."""
    view = pool("best_fit", t4("a/0", sharing="open"), t4("b/0"))
    shares = []
    for number in range(2):
        share = granted(view, Request(f"pod{number}", 500, isolated=False)).shares[0]
        view = view.taking((share,), f"pod{number}", f"l{number}")
        shares.append(share)
    assert [share.device_id for share in shares] == ["a/0", "a/0"]
    assert [share.mib for share in shares] == [t4("a/0").usable] * 2
    assert decide(view, Request("pod2", 100, isolated=False)).outcome is Outcome.QUEUE
