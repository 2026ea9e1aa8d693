"""Tokens: who may call the pool over TCP. A token is shown once and stored as a hash.

A token reads ``gpupool_<id>_<secret>``; the id finds the row, the secret (256 random bits) proves it. A plain
SHA-256 is enough for a secret that nobody chose: there is no dictionary to try.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import Engine, insert, select, update

from gpupool.ledger import schema
from gpupool.ledger.ledger import Ledger
from gpupool.pool.access import validate

ROLES = ("admin", "user", "node")
_TOKEN = re.compile(r"gpupool_([0-9a-f]{12})_([0-9a-f]{64})", re.ASCII)
#: Compared with when no row is found, so that both cases take the same time.
_NOBODY = hashlib.sha256(b"").hexdigest()


class Stored(Protocol):
    """A ledger, or its database alone."""

    @property
    def engine(self) -> Engine: ...


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token as listed. `subject`: the user it stands for, or the node's name for role `node`."""

    id: str
    subject: str
    role: str
    created_unix: float
    revoked_unix: float | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made: the only moment at which its secret can be read."""

    info: TokenInfo
    secret: str = field(repr=False)


def create(ledger: Ledger, subject: str, role: str = "user") -> NewToken:
    """Makes a token; its text is in the answer and nowhere else.

    Raises:
        ValueError: the role is unknown, or the subject is empty, too long or holds spaces.
    """
    if role not in ROLES:
        raise ValueError(f"{role!r} is not a role; roles are {', '.join(ROLES)}")
    if not validate.is_person(subject):
        raise ValueError(
            f"{subject[:40]!r} is not a user or node name (1..128 characters, no spaces, neither @… nor *)"
        )
    token_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    info = TokenInfo(token_id, subject, role, time.time(), None)
    with ledger.engine.begin() as connection:
        connection.execute(
            insert(schema.tokens).values(
                id=token_id, subject=subject, role=role, sha256=_hash(secret), created_unix=info.created_unix
            )
        )
    return NewToken(info, f"gpupool_{token_id}_{secret}")


def list_tokens(ledger: Ledger) -> list[TokenInfo]:
    """All tokens, oldest first, revoked ones too."""
    columns = schema.tokens.c
    query = select(columns.id, columns.subject, columns.role, columns.created_unix, columns.revoked_unix)
    with ledger.engine.connect() as connection:
        return [
            TokenInfo(*row) for row in connection.execute(query.order_by(columns.created_unix, columns.id))
        ]


def revoke(ledger: Ledger, token_id: str) -> bool:
    """Ends a token at once, for the running server too; False when there is no such live token."""
    columns = schema.tokens.c
    change = (
        update(schema.tokens)
        .where(columns.id == token_id, columns.revoked_unix.is_(None))
        .values(revoked_unix=time.time())
    )
    with ledger.engine.begin() as connection:
        return connection.execute(change).rowcount == 1


def verify(ledger: Stored, text: str) -> TokenInfo | None:
    """The token's row when `text` is a live token, else None."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        return None
    with ledger.engine.connect() as connection:
        row = connection.execute(select(schema.tokens).where(schema.tokens.c.id == match[1])).first()
    genuine = hmac.compare_digest(row.sha256 if row else _NOBODY, _hash(match[2]))
    if row is None or not genuine or row.revoked_unix is not None:
        return None
    return TokenInfo(row.id, row.subject, row.role, row.created_unix, row.revoked_unix)


def is_live(ledger: Stored, token_id: str) -> bool:
    """Whether a token that was accepted earlier has not been revoked since."""
    columns = schema.tokens.c
    query = select(columns.id).where(columns.id == token_id, columns.revoked_unix.is_(None))
    with ledger.engine.connect() as connection:
        return connection.execute(query).first() is not None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()
