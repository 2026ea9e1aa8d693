"""Who makes tokens up keeps nobody out who is elsewhere, and a Hub's users come back in time after a restart of the pool."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from gpupool.pool.access import hub as hub_module
from gpupool.pool.access.hub import Hub, HubBusyError, HubDeniedError, HubOptions
from gpupool.pool.access.newcomers import AT_START, LATER, MOST_ADDRESSES, Newcomers, place_of
from gpupool.pool.model.timers import Timers

TIMERS = Timers()
SETTLED = TIMERS.holder


def admitted(newcomers: Newcomers, place: str, count: int, now: float) -> int:
    return sum(newcomers.admits(place, now) for _ in range(count))


class TestLimits:
    def test_two_thousand_servers_of_one_hub_come_back_while_strangers_guess(self) -> None:
        newcomers = Newcomers(0.0, SETTLED)
        missing, now = 2000, 0.0
        while missing and now < TIMERS.holder:
            for stranger in range(3):
                admitted(newcomers, f"stranger {stranger}", 1000, now)
            missing -= admitted(newcomers, "hub", missing, now)
            now += TIMERS.renew / 5
        assert missing == 0

    def test_later_one_who_guesses_all_the_time_keeps_no_other_place_out(self) -> None:
        newcomers = Newcomers(0.0, SETTLED)
        for second in range(int(SETTLED), int(SETTLED) + 60):
            admitted(newcomers, "stranger", 1000, float(second))
            assert admitted(newcomers, "hub", 10, float(second)) == 10

    def test_all_together_have_a_limit(self) -> None:
        for began, allowed in ((0.0, AT_START), (SETTLED, LATER)):
            newcomers = Newcomers(0.0, SETTLED)
            everybody = sum(admitted(newcomers, f"place {number}", 1000, began) for number in range(20))
            assert everybody == allowed.all.burst

    def test_of_a_place_no_more_is_let_through_than_its_own(self) -> None:
        newcomers = Newcomers(0.0, SETTLED)
        assert admitted(newcomers, "a", 9999, 0.0) == AT_START.each.burst
        assert admitted(newcomers, "a", 9999, SETTLED) == LATER.each.burst
        assert admitted(newcomers, "a", 9999, SETTLED + 1) == LATER.each.per_second

    def test_places_are_forgotten_the_oldest_first(self) -> None:
        newcomers = Newcomers(0.0, SETTLED)
        for number in range(MOST_ADDRESSES + 100):
            newcomers.admits(f"place {number}", SETTLED)
        assert len(newcomers) == MOST_ADDRESSES


@pytest.mark.parametrize(
    ("peer", "place"),
    [
        ("ipv4:10.0.0.5:40123", "10.0.0.5"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:40123", "2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2::9]:40123", "2001:db8:1:2::/64"),
        ("ipv6:%5B::ffff:10.0.0.5%5D:40123", "10.0.0.5"),
        ("ipv6:%5Bfe80::1%25eth0%5D:40123", "fe80::/64"),
        ("unix:/run/gpupool/pool.sock", "unix"),
        ("unix:", "unix"),
        ("ipv4:nonsense", "ipv4"),
        ("", ""),
    ],
)
def test_a_place_is_an_address_without_its_port(peer: str, place: str) -> None:
    assert place_of(peer) == place


class ScriptedHub:
    """Knows tokens that begin with ``good``."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, token: str) -> tuple[int, bytes]:
        self.asked.append(token)
        if not token.startswith("good"):
            return 403, b""
        user = {"kind": "user", "name": token, "groups": [], "scopes": [f"access:servers!server={token}/"]}
        return 200, json.dumps(user).encode()


@pytest.fixture
def asked() -> ScriptedHub:
    return ScriptedHub()


@pytest.fixture
def hub(asked: ScriptedHub) -> Hub:
    return Hub(HubOptions("https://hub.example.org/hub/api"), asked, settle=SETTLED)


async def test_a_stranger_keeps_nobody_out_elsewhere(hub: Hub) -> None:
    refused: Counter[type[Exception]] = Counter()
    for number in range(AT_START.all.burst + 100):
        try:
            await hub.exchange(f"guess-{number}", "stranger")
        except (HubBusyError, HubDeniedError) as refusal:
            refused[type(refusal)] += 1
    assert refused[HubDeniedError] >= AT_START.each.burst
    assert refused[HubBusyError]
    assert (await hub.exchange("good-ann", "hub")).user.name == "good-ann"


async def test_a_token_that_the_hub_does_not_know_is_asked_about_once_in_a_while(
    hub: Hub, asked: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        with pytest.raises(HubDeniedError, match="does not know this token"):
            await hub.exchange("guess", "stranger")
    assert asked.asked == ["guess"]
    real = time.monotonic
    monkeypatch.setattr(hub_module.time, "monotonic", lambda: real() + hub_module._DENIED_SECONDS)
    with pytest.raises(HubDeniedError):
        await hub.exchange("guess", "stranger")
    assert asked.asked == ["guess", "guess"]


async def test_so_many_unknown_tokens_are_remembered(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "_MOST_DENIED", 10)
    for number in range(30):
        with pytest.raises(HubDeniedError):
            await hub.exchange(f"guess-{number}", "stranger")
    assert len(hub._denied) == 10
