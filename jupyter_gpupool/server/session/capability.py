"""The secret with which one launch of a kernel asks for its own GPU: renewed all the time, worth nothing afterwards.

The kernel reads it from a file of mode 0600 for each request, so a copy that leaks (a core dump, a pasted
environment) opens nothing some minutes later.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

#: A capability is replaced after this time, seconds.
RENEW_SECONDS: Final = 300.0
#: The former one is still accepted for this time: a request may have been on its way, seconds.
OVERLAP_SECONDS: Final = 60.0


class Capability:
    """Pure; ``now`` is monotonic seconds. Whoever ends the launch forgets the object."""

    def __init__(self, now: float) -> None:
        self._secret = _fresh()
        self._since = now
        self._former = _fresh()
        self._former_until = now

    @property
    def secret(self) -> str:
        """What the kernel shows."""
        return self._secret

    def is_due(self, now: float) -> bool:
        """Whether it is time for :meth:`replace`."""
        return now - self._since >= RENEW_SECONDS

    def replace(self, secret: str, now: float) -> None:
        """Makes ``secret``, from :func:`successor`, the capability; the former one ends soon."""
        self._former, self._former_until = self._secret, now + OVERLAP_SECONDS
        self._secret, self._since = secret, now

    def opens(self, shown: str, now: float) -> bool:
        """Whether this was shown in time; takes the same time for every wrong one."""
        presented = shown.encode()
        current = hmac.compare_digest(self._secret.encode(), presented)
        former = hmac.compare_digest(self._former.encode(), presented)
        return current or (former and now < self._former_until)


def successor() -> str:
    """A secret for :meth:`Capability.replace`: to be where the kernel finds it before it is the one."""
    return _fresh()


def _fresh() -> str:
    return secrets.token_hex(32)
