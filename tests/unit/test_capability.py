"""What one launch of a kernel shows to ask for its GPU."""

from __future__ import annotations

from jupyter_gpupool.server.session.capability import OVERLAP_SECONDS, RENEW_SECONDS, Capability, successor


def test_it_opens_and_nothing_else_does() -> None:
    capability = Capability(0.0)
    assert capability.opens(capability.secret, 1.0)
    for wrong in ("", capability.secret[:-1], capability.secret + "0", successor(), "ä"):
        assert not capability.opens(wrong, 1.0)


def test_it_is_replaced_from_time_to_time_and_the_former_one_ends_soon_after() -> None:
    capability = Capability(0.0)
    former = capability.secret
    assert not capability.is_due(RENEW_SECONDS - 1)
    assert capability.is_due(RENEW_SECONDS)
    capability.replace(successor(), RENEW_SECONDS)
    assert not capability.is_due(RENEW_SECONDS)
    assert capability.secret != former
    assert capability.opens(former, RENEW_SECONDS + OVERLAP_SECONDS - 1)
    assert not capability.opens(former, RENEW_SECONDS + OVERLAP_SECONDS)
    assert capability.opens(capability.secret, RENEW_SECONDS + OVERLAP_SECONDS)


def test_one_that_has_not_been_replaced_stays() -> None:
    """A disk without room must not lock the kernel out."""
    capability = Capability(0.0)
    assert capability.opens(capability.secret, 100 * RENEW_SECONDS)


def test_before_the_first_replacement_no_former_one_opens() -> None:
    capability = Capability(0.0)
    assert not capability.opens(capability._former, 0.0)


def test_every_launch_has_its_own() -> None:
    assert len({Capability(0.0).secret for _ in range(100)}) == 100
