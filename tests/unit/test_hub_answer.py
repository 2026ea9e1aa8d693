"""What a JupyterHub may say of a user, and what is not believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpupool.pool.access.hub_answer import MOST_BYTES, MOST_GROUPS, HubAnswerUnusableError, HubUser, read

SERVER = ["access:servers!server=ann/", "users:activity!user=ann"]


def said(**more: Any) -> bytes:
    return json.dumps({"kind": "user", "name": "ann", "groups": [], "scopes": SERVER, **more}).encode()


def test_a_user_with_groups() -> None:
    assert read(said(groups=["vision", "speech"], admin=False)) == HubUser("ann", ("speech", "vision"))


@pytest.mark.parametrize(
    ("admin", "expected"), [(True, True), (False, False), (None, False), ("true", False), (1, False)]
)
def test_only_true_makes_an_admin(admin: object, expected: bool) -> None:
    assert read(said(admin=admin)).admin is expected


def test_groups_that_cannot_be_a_member_of_a_project_are_left_out() -> None:
    assert read(said(groups=["a b", "", "x" * 129, "\x1b[2J", "fine", "fine"])).groups == ("fine",)


@pytest.mark.parametrize(
    "scopes",
    [
        ["access:servers"],
        ["access:servers!user=ann"],
        ["access:servers!server=ann/"],
        ["access:servers!server=ann/second"],
        ["read:users", "access:servers!server=ann/"],
    ],
)
def test_tokens_of_the_users_own_servers(scopes: list[str]) -> None:
    assert read(said(scopes=scopes)).name == "ann"


@pytest.mark.parametrize(
    "scopes",
    [
        [],
        ["read:users:name!user=ann", "access:services!service=grader"],
        ["access:servers!user=annabel"],
        ["access:servers!server=annabel/"],
        ["access:servers!group=ann"],
        [1, None, {}],
    ],
)
def test_a_token_that_a_service_got_from_the_user_is_not_enough(scopes: list[Any]) -> None:
    with pytest.raises(HubAnswerUnusableError, match="none of their own servers'"):
        read(said(scopes=scopes))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "describes nobody"),
        (b"null", "describes nobody"),
        (b" " * (MOST_BYTES + 1), "more than"),
        (said(kind="service"), "the token is of a 'service'"),
        (said(kind=None), "the token is of a 'None'"),
        (said(scopes=None), "version 2 or newer"),
        (said(scopes="access:servers"), "version 2 or newer"),
        (said(groups="vision"), "no list of groups"),
        (said(groups=[1]), "no list of groups"),
        (said(groups=["g"] * (MOST_GROUPS + 1)), f"1001 groups, more than {MOST_GROUPS}"),
        *(
            (said(name=name, scopes=["access:servers"]), "cannot be a user here")
            for name in ("", "*", "@vision", "a b", "a\nb", "\x1b[2J", "x" * 129, None, 7, ["ann"])
        ),
    ],
)
def test_anything_else_is_refused_with_a_sentence(answer: bytes, problem: str) -> None:
    with pytest.raises(HubAnswerUnusableError, match=problem):
        read(answer)
