"""How long the Hub's word counts, and what is given for it."""

from __future__ import annotations

import re

import pytest
from gpupool.pool.access.hub_answer import HubUser
from gpupool.pool.access.hub_cache import HubCache, HubTimes, digest_of
from gpupool.pool.access.rate_limit import RateLimit

ANN, BOB = HubUser("ann", ("vision",)), HubUser("bob")
A, B = digest_of("token-a"), digest_of("token-b")


@pytest.fixture
def cache() -> HubCache:
    return HubCache(HubTimes(believed=300.0, grace=1000.0))


def name(cache: HubCache, token: str, now: float) -> str | None:
    found = cache.who(token, now)
    return found[1].name if found else None


def test_a_short_lived_token_is_good_for_as_long_as_the_hubs_word(cache: HubCache) -> None:
    short = cache.confirmed(A, ANN, 0.0)
    assert short.seconds == 300.0
    assert re.fullmatch(r"gpupool_hub_[0-9a-f]{16}_[0-9a-f]{64}", short.token)
    assert cache.who(short.token, 299.0) == (short.token.split("_")[2], ANN)
    assert name(cache, short.token, 300.0) is None


def test_others_are_not(cache: HubCache) -> None:
    short = cache.confirmed(A, ANN, 0.0).token
    other = cache.confirmed(B, BOB, 0.0).token
    ann, bob = short.split("_"), other.split("_")
    for wrong in (
        "",
        short[:-1],
        short + "0",
        short.upper(),
        "_".join([*ann[:3], bob[3]]),
        "_".join([*bob[:3], ann[3]]),
        "token-a",
        short[:-1] + ("0" if short[-1] != "0" else "1"),
    ):
        assert name(cache, wrong, 1.0) is None, wrong


def test_the_hub_is_not_asked_again_within_a_quarter_of_the_time(cache: HubCache) -> None:
    assert cache.fresh(A, 0.0) is None
    first = cache.confirmed(A, ANN, 0.0)
    again = cache.fresh(A, 74.0)
    assert again is not None
    assert (again.token, again.seconds) == (first.token, 226.0)
    assert cache.fresh(A, 75.0) is None


def test_who_exchanges_often_does_not_end_the_callers_other_tokens(cache: HubCache) -> None:
    first = cache.confirmed(A, ANN, 0.0).token
    for second in range(1, 280):
        cache.fresh(A, float(second)) or cache.confirmed(A, ANN, float(second))
        assert name(cache, first, float(second)) == "ann"


def test_a_revoked_token_ends_at_once_when_the_hub_says_so_and_else_in_time(cache: HubCache) -> None:
    short = cache.confirmed(A, ANN, 0.0)
    other = cache.confirmed(B, BOB, 0.0)
    entry = short.token.split("_")[2]
    assert cache.is_live(entry, 1.0)
    cache.denied(A)
    assert name(cache, short.token, 1.0) is None
    assert not cache.is_live(entry, 1.0)
    assert name(cache, other.token, 1.0) == "bob"
    cache.denied(A)  # nothing to forget


def test_what_lasts_goes_on_while_tokens_are_exchanged(cache: HubCache) -> None:
    entry = cache.confirmed(A, ANN, 0.0).token.split("_")[2]
    assert not cache.is_live(entry, 300.0)
    cache.confirmed(A, ANN, 200.0)
    assert cache.is_live(entry, 499.0)
    assert not cache.is_live(entry, 501.0)


def test_a_group_that_was_left_counts_for_tokens_that_were_given_before(cache: HubCache) -> None:
    short = cache.confirmed(A, ANN, 0.0).token
    cache.confirmed(A, HubUser("ann", ()), 100.0)
    found = cache.who(short, 101.0)
    assert found is not None and found[1].groups == ()


def test_while_the_hub_is_silent_who_is_known_goes_on_for_the_grace_time(cache: HubCache) -> None:
    assert cache.unanswered(A, 0.0) is None
    cache.confirmed(A, ANN, 0.0)
    at = 100.0
    while (short := cache.unanswered(A, at)) is not None:
        assert name(cache, short.token, at) == "ann"
        assert short.seconds > 0
        at += max(1.0, short.seconds - 1)
    assert 1295.0 <= at <= 1310.0
    assert name(cache, cache.confirmed(A, ANN, at).token, at + 1) == "ann"


def test_no_token_outlives_the_grace_time(cache: HubCache) -> None:
    cache.confirmed(A, ANN, 0.0)
    short = cache.unanswered(A, 1299.0)
    assert short is not None and short.seconds <= 1.0
    assert name(cache, short.token, 1301.0) is None


def test_no_more_are_known_than_there_is_room_for() -> None:
    cache = HubCache(HubTimes(), most=100)
    last = ""
    for number in range(1000):
        last = cache.confirmed(digest_of(str(number)), HubUser(f"user{number}"), float(number)).token
        assert len(cache) <= 100
    assert name(cache, last, 1000.0) == "user999"


def test_nothing_prints_a_secret(cache: HubCache) -> None:
    short = cache.confirmed(A, ANN, 0.0)
    secret = short.token.split("_")[3]
    assert secret not in repr(short)
    assert secret not in repr(list(cache._by_id.values()))


def test_a_rate_has_a_burst_and_recovers() -> None:
    limit = RateLimit(2.0, 3, 0.0)
    assert [limit.admits(0.0) for _ in range(4)] == [True, True, True, False]
    assert [limit.admits(1.0) for _ in range(3)] == [True, True, False]
    assert not limit.admits(0.5)  # clocks do not go back; if one does, nothing is given
    assert [limit.admits(1000.0) for _ in range(4)] == [True, True, True, False]
