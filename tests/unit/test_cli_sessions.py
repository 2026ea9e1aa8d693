"""The session that is meant by an id of a list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpupool.cli.common.sessions import whole_session
from gpupool.client.errors import PoolRefusedError
from gpupool.client.types import SessionInfo, Usage

ONE, OTHER, ALIKE = "0123456789abcdef" * 2, "fedcba9876543210" * 2, "0123456789abffff" * 2


async def sessions() -> list[SessionInfo]:
    one = SessionInfo(ONE, "ann", "", "", "n1", "parked", "", ("n1/0",), "", Usage())
    return [one, replace(one, id=OTHER), replace(one, id=ALIKE)]


async def test_as_lists_show_it() -> None:
    assert await whole_session(sessions, OTHER[:12]) == OTHER
    assert await whole_session(sessions, ONE[:16]) == ONE
    assert await whole_session(sessions, OTHER[:1]) == OTHER


async def test_a_whole_one_that_the_pool_has_forgotten() -> None:
    assert await whole_session(sessions, "a" * 32) == "a" * 32


async def test_the_historys_name_for_the_rest() -> None:
    assert await whole_session(sessions, "(others)") == "(others)"


@pytest.mark.parametrize("said", [ONE[:12], "0", "a" * 31, "zzz"])
async def test_none_or_more_than_one(said: str) -> None:
    with pytest.raises(PoolRefusedError) as refused:
        await whole_session(sessions, said)
    assert refused.value.reason == "unknown-session"
    assert "gpupool report history --by client" in str(refused.value)
