"""A wait that another thread gives up: whoever waits is told once, whatever the order."""

from __future__ import annotations

import threading

from gpupool.client.keeper import GivenUp


def test_it_is_told_at_once_where_it_was_given_up_before() -> None:
    told: list[str] = []
    given_up = GivenUp()
    given_up.set()
    given_up.when(lambda: told.append("now"))
    assert told == ["now"]


def test_two_threads_at_once_tell_it_once() -> None:
    """`when` looks whether it is over only after another thread, which it lets in here, has said so and told it."""
    told: list[str] = []
    given_up = GivenUp()
    entered = threading.Lock()

    class Turnstile:
        """The lock, and behind its first release the other thread's whole call."""

        def __enter__(self) -> None:
            entered.acquire()

        def __exit__(self, *_: object) -> None:
            entered.release()
            given_up._lock = entered  # type: ignore[assignment]
            other = threading.Thread(target=given_up.set)
            other.start()
            other.join()

    given_up._lock = Turnstile()  # type: ignore[assignment]
    given_up.when(lambda: told.append("told"))
    assert told == ["told"]
