"""Which share would have had room for an allocation that was refused, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.client.refused_memory import MIB, LargerShare, RefusedMemory, larger_share, left_beside
from gpupool.client.types import Device, GrantedShare

from jupyter_gpupool.kernel.out_of_memory import OutOfMemory, Way

GIB = 1024 * MIB
USABLE_MIB = 7936
#: 0.2 of a device with 7.75 GiB, and a program that asks for 3 GiB at once.
HELD = GrantedShare("vm/0", 200, 1587)
THREE_GIB = RefusedMemory(3 * GIB, 1587 * MIB, 0, 1586 * MIB, 3 * GIB)


def device(name: str = "vm/0", free_milli: int = 800, usable_mib: int = USABLE_MIB) -> Device:
    """With the rest of its memory free as its compute is."""
    return Device(
        id=name,
        node=name.split("/")[0],
        ordinal=0,
        name="Software GPU",
        uuid=name,
        software=True,
        healthy=True,
        health_reason="",
        total_mib=usable_mib + 256,
        usable_mib=usable_mib,
        free_milli=free_milli,
        free_mib=usable_mib - usable_mib * (1000 - free_milli) // 1000,
        used_bytes=0,
        shares=(),
    )


def test_the_smallest_step_with_room_is_offered() -> None:
    assert larger_share(THREE_GIB, [HELD], [device()]) == LargerShare("0.4", 3174, True)
    little_more = replace(THREE_GIB, needed=1588 * MIB)
    assert larger_share(little_more, [HELD], [device()]) == LargerShare("0.3", 2380, True)
    exactly = replace(THREE_GIB, needed=USABLE_MIB * MIB)
    assert larger_share(exactly, [HELD], [device()]) == LargerShare("1", USABLE_MIB, True)


def test_what_the_drivers_context_takes_is_asked_for_too() -> None:
    with_context = replace(THREE_GIB, share=(1587 - 400) * MIB)
    assert larger_share(with_context, [HELD], [device()]) == LargerShare("0.5", 3968, True)


@pytest.mark.parametrize(("free_milli", "free"), [(800, True), (200, True), (199, False), (0, False)])
def test_what_is_free_counts_with_what_is_held(free_milli: int, free: bool) -> None:
    assert larger_share(THREE_GIB, [HELD], [device(free_milli=free_milli)]) == LargerShare("0.4", 3174, free)


def test_memory_that_others_left_there_is_no_room_unless_it_can_be_moved() -> None:
    kept = replace(device(), free_mib=1000)
    assert larger_share(THREE_GIB, [HELD], [kept]) == LargerShare("0.4", 3174, False)
    assert larger_share(THREE_GIB, [HELD], [replace(kept, movable_mib=1000)]) == LargerShare(
        "0.4", 3174, True
    )


def test_another_device_may_have_it() -> None:
    full, other = device(free_milli=0), device("vm/1", 400)
    assert larger_share(THREE_GIB, [HELD], [full, other]) == LargerShare("0.4", 3174, True)
    assert larger_share(THREE_GIB, [HELD], [full, replace(other, healthy=False)]) == LargerShare(
        "0.4", 3174, False
    )


def test_no_device_has_so_much() -> None:
    huge = replace(THREE_GIB, asked=900 * GIB, needed=900 * GIB)
    assert larger_share(huge, [HELD], [device()]) == LargerShare("", USABLE_MIB, False)
    assert larger_share(replace(huge, needed=2**64 - 1), [HELD], [device()]) == LargerShare(
        "", USABLE_MIB, False
    )


def test_where_devices_differ_the_share_is_written_as_memory() -> None:
    """0.4 would mean something else on the other."""
    large = device("vm/1", 1000, 81920)
    assert larger_share(THREE_GIB, [HELD], [device(), large]) == LargerShare("3072MiB", 3072, True)
    ten_gib = replace(THREE_GIB, needed=10 * GIB + 1)
    assert larger_share(ten_gib, [HELD], [device(), large]) == LargerShare("10752MiB", 10752, True)
    assert larger_share(ten_gib, [HELD], [device(), replace(large, free_milli=0)]) == LargerShare(
        "10752MiB", 10752, False
    )


def test_each_of_several_devices_grows() -> None:
    both = [HELD, GrantedShare("vm/1", 200, 1587)]
    second = replace(THREE_GIB, device=1)
    assert larger_share(second, both, [device(), device("vm/1", 300)]) == LargerShare("0.4", 3174, True, 2)
    assert larger_share(second, both, [device(), device("vm/1", 100)]) == LargerShare("0.4", 3174, False, 2)


def test_of_a_pool_without_devices_nothing_is_known() -> None:
    assert larger_share(THREE_GIB, [HELD], []) is None
    assert larger_share(THREE_GIB, [], [device()]) is None


@pytest.mark.parametrize(
    ("larger", "way", "line"),
    [
        (LargerShare("0.5", 3968, True), "cell", "%%gpu 0.5 (3.88 GiB) is free now"),
        (
            LargerShare("0.5", 3968, True, 2),
            "cell",
            "%%gpu 0.5 -n 2 (3.88 GiB of each of 2 GPUs) is free now",
        ),
        (LargerShare("0.5", 3968, False), "resize", "%gpu resize 0.5 (3.88 GiB) would have room"),
        (LargerShare("0.5", 3968, True, 2), "code", "gpupool.attach('0.5', n=2) (3.88 GiB"),
        (LargerShare("", 7936, False), "cell", "the largest share is 1 (7.75 GiB)"),
        (None, "cell", "(largest free piece 1.55 GiB)."),
    ],
)
def test_the_line_that_gets_it_is_said(larger: LargerShare | None, way: Way, line: str) -> None:
    said = OutOfMemory(THREE_GIB, larger, way).text()
    assert said.startswith("out of memory: 3 GiB asked, the share has 1.55 GiB, 0 B used")
    assert line in said


def test_the_figures_travel_as_json() -> None:
    trouble = OutOfMemory(THREE_GIB, LargerShare("0.5", 3968, True), "cell")
    view = json.loads(json.dumps(trouble.view()))
    assert RefusedMemory.parse(view) == THREE_GIB
    assert LargerShare.parse(view["larger_share"]) == trouble.larger
    assert LargerShare("", 7936, False).view()["share"] is None


@pytest.mark.parametrize("value", [None, [], "x", {}, {"asked": 1}, {**THREE_GIB.view(), "used": -1}])
def test_what_is_no_record_is_refused_with_what_is_wrong(value: object) -> None:
    with pytest.raises(ValueError, match="record of refused memory"):
        RefusedMemory.parse(value)


def test_the_record_beside_a_session_file_is_read(tmp_path: Path) -> None:
    session = tmp_path / "session"
    assert left_beside(session) is None
    note = tmp_path / "session.out_of_memory"
    note.write_text(json.dumps(THREE_GIB.view()) + "\n")
    assert left_beside(session) == THREE_GIB
    for broken in ("", "{", "[]", '{"asked":true}', '{"asked":' + "1" * 5000):
        note.write_text(broken)
        assert left_beside(session) is None
