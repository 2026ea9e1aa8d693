"""Pools whose users are not to know of each other: no answer names anybody else."""

from __future__ import annotations

import pytest
from gpupool.pool.access.hidden_users import hide, without_users
from gpupool.proto import pool_pb2 as pb
from gpupool.scheduler import explain
from gpupool.scheduler.model import DeviceView, Held
from hypothesis import given
from hypothesis import strategies as st

names = st.from_regex(r"[a-z0-9._@;,-]{1,20}", fullmatch=True)


@given(st.lists(names, min_size=1, max_size=8), st.integers(0, 7))
def test_what_the_scheduler_says_of_a_device_names_nobody_else(users: list[str], own: int) -> None:
    users = [f"user-{name}-end" for name in users]
    viewer = users[own % len(users)]
    held = [
        *(Held(f"l{number}", user, 100, 800) for number, user in enumerate(users)),
        *(Held("", user, 0, 800, f"{number:032x}", stays="ipc") for number, user in enumerate(users)),
        *(Held("", user, 100, 800, f"{number:032x}") for number, user in enumerate(users)),
        *(Held("", user, 0, 800) for user in users),
    ]
    for first in range(len(held)):
        device = DeviceView("n/0", "n", 80_000, held=tuple(held[first : first + 2]))
        said = without_users(explain.holders(device), viewer)
        assert not [user for user in users if user != viewer and user in said.split()], said
        for user in set(users) - {viewer}:
            assert f"{user} " not in f"{said} " and f"{user}," not in said, said
        if viewer in explain.holders(device):
            assert viewer in said


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("ann holds 0.50, bob holds 0.20", "somebody holds 0.50, bob holds 0.20"),
        ("a parked session of ann keeps 30 MiB", "a parked session of somebody keeps 30 MiB"),
        (
            "parked session 0123456789ab of ann keeps 3 MiB",
            "parked session 0123456789ab of somebody keeps 3 MiB",
        ),
        ("0.20 is kept for session 0123456789ab of ann", "0.20 is kept for session 0123456789ab of somebody"),
        ("project a/b holds no leases itself", "project a/b holds no leases itself"),
        ("bob holds 1.00 of a quota of 1.00", "bob holds 1.00 of a quota of 1.00"),
        ("", ""),
    ],
)
def test_sentences(text: str, seen: str) -> None:
    assert without_users(text, "bob") == seen


def test_messages_are_looked_at_as_deep_as_they_go() -> None:
    explanation = pb.Explanation(
        sentence="ann holds 1.00", facts={"who": "ann holds 1.00"}, helps=[pb.Help(sentence="ann holds 1.00")]
    )
    queue = pb.QueueList(
        entries=[
            pb.QueueEntry(user="ann", id="ann\nkey", reason="ann holds 1.00", explanation=explanation),
            pb.QueueEntry(user="bob", id="bob\nkey", filters=["name=ann"]),
        ]
    )
    devices = pb.DeviceList(
        devices=[pb.Device(id="n/0", labels={"zone": "a"}, shares=[pb.HeldShare(user="ann")])]
    )
    hide(queue, "bob")
    hide(devices, "bob")
    theirs, own = queue.entries
    assert (theirs.user, theirs.id, theirs.reason) == ("", "", "somebody holds 1.00")
    assert "ann" not in str(theirs)
    assert (own.user, own.id, list(own.filters)) == ("bob", "bob\nkey", ["name=ann"])
    assert devices.devices[0].labels == {"zone": "a"}
    assert "ann" not in str(devices)
