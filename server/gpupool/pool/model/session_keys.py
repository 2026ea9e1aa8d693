"""What opens a session's worker: to its client, and to the worker that takes the session over.

A session has one secret, which the pool alone knows whole. Workers show it to each other when a session moves; clients get
what is derived from it. So a client cannot fetch its session's memory as a worker would, by which memory that was parked
comes back to a device without a lease.
"""

from __future__ import annotations

import hashlib

from gpupool.model.state import SessionRecord


def client_token(session: SessionRecord) -> str:
    """What the session's client shows its worker, 64 hexadecimal characters; nobody finds `move_key` by it."""
    return hashlib.sha256(b"client token of a session\0" + bytes.fromhex(session.secret)).hexdigest()


def move_key(session: SessionRecord) -> str:
    """What the session's next worker shows the present one, 64 hexadecimal characters."""
    return session.secret
