"""Tokens while a database on another machine does not answer: those that were good before stay good."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from gpupool.pool.access import token_check, tokens
from gpupool.pool.access.token_check import LedgerSilentError, TokenCheck
from gpupool.pool.access.tokens import TokenInfo
from sqlalchemy.exc import OperationalError

KNOWN, REVOKED, NEW = "gpupool_known", "gpupool_revoked", "gpupool_new"


class Database:
    """Answers, is broken, or hangs until the test ends."""

    def __init__(self) -> None:
        self.engine = SimpleNamespace(dialect=SimpleNamespace(name="postgresql"))
        self.state = "answers"
        self.asked = 0
        self.over = threading.Event()
        self.good = {KNOWN, REVOKED, NEW}

    def verify(self, stored: Any, text: str) -> TokenInfo | None:
        self.asked += 1
        if self.state == "broken":
            raise OperationalError("select", {}, Exception("gone"))
        if self.state == "hangs":
            self.over.wait(60)
        return TokenInfo(text, "ann", "user", 0.0, None) if text in self.good else None

    def is_live(self, stored: Any, token_id: str) -> bool:
        return self.verify(stored, token_id) is not None


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    made = Database()
    monkeypatch.setattr(tokens, "verify", made.verify)
    monkeypatch.setattr(tokens, "is_live", made.is_live)
    # No question is late because the machine is busy; what hangs is not waited for long.
    monkeypatch.setattr(token_check, "_ANSWER", 60.0)
    monkeypatch.setattr(token_check, "_PAUSE", 3600.0)
    yield made
    made.over.set()


@pytest.mark.parametrize("state", ["broken", "hangs"])
async def test_only_what_was_good_when_it_was_asked_last_stays_good(
    database: Database, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = TokenCheck(database)
    for text in (KNOWN, REVOKED):
        assert await check.verify(text) is not None
    database.good.discard(REVOKED)
    assert await check.verify(REVOKED) is None
    database.state = state
    monkeypatch.setattr(token_check, "_ANSWER", 0.05 if state == "hangs" else 60.0)
    found = await check.verify(KNOWN)
    assert found is not None and found.id == KNOWN
    for text in (REVOKED, NEW):
        with pytest.raises(LedgerSilentError):
            await check.verify(text)
    assert await check.is_live(NEW)


async def test_a_token_that_was_revoked_here_is_not_good_when_the_database_is_silent(
    database: Database,
) -> None:
    check = TokenCheck(database)
    for text in (KNOWN, REVOKED):
        assert await check.verify(text) is not None
    check.forget(REVOKED)
    database.state = "broken"
    assert await check.verify(KNOWN) is not None
    with pytest.raises(LedgerSilentError):
        await check.verify(REVOKED)


async def test_a_silent_database_is_not_asked_by_every_call(database: Database) -> None:
    check = TokenCheck(database)
    await check.verify(KNOWN)
    database.state, database.asked = "broken", 0
    for _ in range(50):
        await check.verify(KNOWN)
    assert database.asked == 1


async def test_it_is_asked_again_after_a_pause(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_check, "_PAUSE", 0.0)
    check = TokenCheck(database)
    await check.verify(KNOWN)
    database.state = "broken"
    await check.verify(KNOWN)
    database.state = "answers"
    database.good.discard(KNOWN)
    assert await check.verify(KNOWN) is None
