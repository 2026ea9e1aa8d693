"""Pools whose users are not to know of each other: no answer names anybody else."""

from __future__ import annotations

import json

import pytest
from gpupool.pool.access.hidden_users import hide
from gpupool.proto import pool_pb2 as pb
from gpupool.proto.sentences import from_message, to_message
from gpupool.scheduler import explain
from gpupool.scheduler.model import DeviceView, Held
from gpupool.sentences import Sentence, clauses, param, render, say, without_users
from hypothesis import given
from hypothesis import strategies as st

names = st.from_regex(r"[a-z0-9._@;,-]{1,20}", fullmatch=True)


@given(st.lists(names, min_size=1, max_size=8), st.integers(0, 7))
def test_what_the_scheduler_says_of_a_device_names_nobody_else(users: list[str], own: int) -> None:
    users = [f"user-{name}-end" for name in users]
    viewer = users[own % len(users)]
    held = [
        *(Held(f"l{number}", user, 100, 800) for number, user in enumerate(users)),
        *(
            Held("", user, 0, 800, f"{number:032x}", stays=say("obstacle.ipc"))
            for number, user in enumerate(users)
        ),
        *(Held("", user, 100, 800, f"{number:032x}") for number, user in enumerate(users)),
        *(Held("", user, 0, 800) for user in users),
    ]
    for first in range(len(held)):
        device = DeviceView("n/0", "n", 80_000, held=tuple(held[first : first + 2]))
        full = say("listed", of=explain.holders(device))
        said = render(without_users(full, viewer))
        for user in set(users) - {viewer}:
            assert user not in said, said
        assert (viewer in said) == (viewer in render(full))


HOLDS = say("holds", user=param.user("ann"), milli=param.milli(500))


@pytest.mark.parametrize(
    ("sentence", "seen"),
    [
        (HOLDS, "another user holds 0.50"),
        (say("holds", user=param.user("bob"), milli=param.milli(200)), "bob holds 0.20"),
        (
            clauses(say("listed", of=[HOLDS, say("holds.stays", held=HOLDS, why=param.text("ipc"))])),
            "another user holds 0.50, another user holds 0.50, which cannot be moved: ipc",
        ),
        (
            say(
                "asked-back.from",
                project=param.project("A"),
                user=param.user("ann"),
                milli=param.milli(1000),
            ),
            "project A (another user, 1.00)",
        ),
        (
            say("project.inner", project=param.project("ann"), below=param.project("ann/x")),
            "project ann holds no leases itself; name one of those below it: ann/x",
        ),
        (Sentence(), ""),
    ],
)
def test_sentences(sentence: Sentence, seen: str) -> None:
    assert render(without_users(sentence, "bob")) == seen


def test_messages_are_looked_at_as_deep_as_they_go() -> None:
    holds = to_message(HOLDS)
    explanation = pb.Explanation(
        said=to_message(clauses(HOLDS, HOLDS)),
        facts={"user": "ann", "asked_milli": "100"},
        helps=[pb.Help(said=holds)],
    )
    queue = pb.QueueList(
        entries=[
            pb.QueueEntry(user="ann", id="ann\nkey", said=holds, explanation=explanation),
            pb.QueueEntry(user="bob", id="bob\nkey", filters=["name=ann"]),
        ]
    )
    devices = pb.DeviceList(
        devices=[pb.Device(id="n/0", labels={"zone": "a"}, shares=[pb.HeldShare(user="ann")])]
    )
    hide(queue, "bob")
    hide(devices, "bob")
    theirs, own = queue.entries
    assert (theirs.user, theirs.id, str(from_message(theirs.said))) == ("", "", "another user holds 0.50")
    assert dict(theirs.explanation.facts) == {"asked_milli": "100"}
    assert "ann" not in str(theirs)
    assert (own.user, own.id, list(own.filters)) == ("bob", "bob\nkey", ["name=ann"])
    assert devices.devices[0].labels == {"zone": "a"}
    assert "ann" not in str(devices)


def test_the_journal_does_not_say_for_whom_a_lease_was_taken_back() -> None:
    data = {"reason": "reclaim", "for_user": "ann", "for_key": "k1", "for_project": "A", "milli": 100}
    line = pb.JournalLine(user="bob", data_json=json.dumps(data))
    hide(line, "bob")
    assert json.loads(line.data_json) == {"reason": "reclaim", "for_project": "A", "milli": 100}
    own = pb.JournalLine(user="ann", data_json=json.dumps(data))
    hide(own, "ann")
    assert json.loads(own.data_json) == data
