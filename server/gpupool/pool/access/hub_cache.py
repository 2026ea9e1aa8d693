"""Who showed which JupyterHub token lately, and the short-lived tokens that they got for it. Pure: time is passed in.

A JupyterHub token is known by its SHA-256 only. Asking the Hub at each call would make every call as slow as the Hub,
and none possible while it restarts; so an answer is believed for a while:

======================  ==========================================================================
age of the Hub's answer
======================  ==========================================================================
up to a quarter         whoever shows the same token again is believed without asking
up to ``believed``      the short-lived token is good; asking for another one asks the Hub
``grace`` beyond that   only while the Hub does not answer
======================  ==========================================================================

So a token that was revoked in the Hub ends here within ``believed`` seconds, or at once when the Hub is asked.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

from gpupool.pool.access.hub_answer import HubUser

_SHORT: Final = re.compile(r"gpupool_hub_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)
#: While the Hub does not answer, it is asked again this often at least, seconds.
_UNANSWERED_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class HubTimes:
    """Seconds. `believed`: how long an answer of the Hub counts. `grace`: how much longer while it is down."""

    believed: float = 300.0
    grace: float = 1800.0


@dataclass(slots=True)
class _Secret:
    text: str = field(repr=False)
    since: float
    until: float


@dataclass(slots=True)
class Entry:
    """One JupyterHub token. `good_until`: of the latest short-lived token."""

    id: str
    digest: bytes = field(repr=False)
    user: HubUser
    answered_at: float
    secrets: list[_Secret] = field(default_factory=list, repr=False)

    @property
    def good_until(self) -> float:
        return max((secret.until for secret in self.secrets), default=self.answered_at)


@dataclass(frozen=True, slots=True)
class Short:
    """A short-lived token. `seconds`: it is good for."""

    token: str = field(repr=False)
    seconds: float
    user: HubUser


def digest_of(token: str) -> bytes:
    """What stands for a token in memory, so that the token itself does not."""
    return hashlib.sha256(token.encode()).digest()


class HubCache:
    """`most`: tokens that are known at a time; beyond it those that end first are forgotten."""

    def __init__(self, times: HubTimes, most: int = 20_000) -> None:
        self._times = times
        self._most = most
        self._by_digest: dict[bytes, Entry] = {}
        self._by_id: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def is_known(self, digest: bytes) -> bool:
        """Whether the Hub has said whose token this is, and it may still count."""
        return digest in self._by_digest

    def fresh(self, digest: bytes, now: float) -> Short | None:
        """Another look at a token that the Hub was asked about a moment ago."""
        entry = self._by_digest.get(digest)
        if entry is None or now - entry.answered_at >= self._times.believed / 4:
            return None
        return self._mint(entry, entry.answered_at + self._times.believed, now)

    def confirmed(self, digest: bytes, user: HubUser, now: float) -> Short:
        """The Hub says whose token it is."""
        entry = self._by_digest.get(digest)
        if entry is None:
            self._make_room(now)
            entry = Entry(secrets.token_hex(8), digest, user, now)
            self._by_digest[digest] = self._by_id[entry.id] = entry
        entry.user, entry.answered_at = user, now
        return self._mint(entry, now + self._times.believed, now)

    def denied(self, digest: bytes) -> None:
        """The Hub does not know the token any more: what was given for it ends at once."""
        entry = self._by_digest.pop(digest, None)
        if entry is not None:
            del self._by_id[entry.id]

    def unanswered(self, digest: bytes, now: float) -> Short | None:
        """The Hub does not answer; who was known goes on for the grace time."""
        entry = self._by_digest.get(digest)
        if entry is None:
            return None
        end = entry.answered_at + self._times.believed + self._times.grace
        if now >= end:
            return None
        pause = min(_UNANSWERED_SECONDS, self._times.believed)
        return self._mint(entry, max(entry.answered_at + self._times.believed, min(end, now + pause)), now)

    def who(self, short: str, now: float) -> tuple[str, HubUser] | None:
        """Id and user of a short-lived token that is good; None: it is not."""
        match = _SHORT.fullmatch(short)
        entry = self._by_id.get(match[1]) if match is not None else None
        if match is None or entry is None:
            return None
        found = [
            secret
            for secret in entry.secrets
            if hmac.compare_digest(secret.text, match[2]) and now < secret.until
        ]
        return (entry.id, entry.user) if found else None

    def is_live(self, entry_id: str, now: float) -> bool:
        """Whether any short-lived token of this one is still good: what lasts asks again and again."""
        entry = self._by_id.get(entry_id)
        return entry is not None and now < entry.good_until

    def _mint(self, entry: Entry, until: float, now: float) -> Short:
        """The latest secret again while it is young, so that a caller who asks often does not end their other ones."""
        latest = entry.secrets[-1] if entry.secrets else None
        if latest is None or now - latest.since >= self._times.believed / 4 or now >= latest.until:
            latest = _Secret(secrets.token_hex(32), now, until)
            entry.secrets = [
                *(secret for secret in entry.secrets if now < secret.until),
                latest,
            ][-8:]
        latest.until = max(latest.until, until)
        return Short(f"gpupool_hub_{entry.id}_{latest.text}", max(0.0, latest.until - now), entry.user)

    def _make_room(self, now: float) -> None:
        if len(self._by_id) < self._most:
            return
        # Those in grace count by when they end without it.
        last = sorted(self._by_id.values(), key=lambda entry: entry.good_until)
        over = [entry for entry in last if entry.good_until + self._times.grace <= now]
        for entry in over or last[: max(1, self._most // 10)]:
            self.denied(entry.digest)
