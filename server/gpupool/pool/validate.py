"""Checks of what callers send, before it reaches the machine. Errors name the value."""

from __future__ import annotations

import math
import re

from gpupool.pool.events import Requested
from gpupool.pool.state import REASONS
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.shares import MAXIMUM_DEVICES, MAXIMUM_MIB, NODE_CHOICES, WHOLE_DEVICE_MILLI
from gpupool.text import printable

_NAME = re.compile(r".{1,128}")
_USER = re.compile(r"\S{1,128}")
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_MAX_TEXT = 256
_MAX_SECONDS = 366 * 24 * 3600.0


class BadInput(ValueError):
    """A field of a request is out of its bounds; `reason` is the id that clients see."""

    def __init__(self, explanation: str, reason: str = "bad-request") -> None:
        super().__init__(explanation)
        self.reason = reason


def size(milli: int, mib: int) -> tuple[int | None, int | None]:
    """(milli, mib) with exactly one set."""
    if milli and mib:
        raise BadInput(
            f"both milli {milli} and mib {mib} are given; give one, the other follows", "bad-share"
        )
    if not milli and not mib:
        raise BadInput(
            "neither milli nor mib is given (both are 0); ask for a share such as 200", "bad-share"
        )
    if milli and not 1 <= milli <= WHOLE_DEVICE_MILLI:
        raise BadInput(f"milli {milli} is not within 1..{WHOLE_DEVICE_MILLI}", "bad-share")
    if mib and not 1 <= mib <= MAXIMUM_MIB:
        raise BadInput(f"mib {mib} is not within 1..{MAXIMUM_MIB}", "bad-share")
    return (milli or None), (mib or None)


def request(message: pb.RequestLease, user: str, now: float) -> Requested:
    """The ask as an event.

    Raises:
        BadInput: a field is out of bounds.
    """
    milli, mib = size(message.milli, message.mib)
    if message.nodes and message.nodes not in NODE_CHOICES:
        raise BadInput(f"nodes {message.nodes[:40]!r} is none of {', '.join(NODE_CHOICES)}")
    if not 0 <= message.count <= MAXIMUM_DEVICES:
        raise BadInput(f"count {message.count} is not within 0..{MAXIMUM_DEVICES}", "bad-share")
    key = message.idempotency_key
    if not _NAME.fullmatch(key) or printable(key) != key:
        raise BadInput("idempotency_key must have 1..128 printable characters")
    if not is_user(user):
        raise BadInput(f"{user[:40]!r} is not a user name (1..128 characters, no spaces)")
    wait = message.wait_seconds
    if math.isnan(wait):
        raise BadInput("wait_seconds is not a number")
    duration = message.duration_seconds
    if not 0 <= duration <= _MAX_SECONDS:
        raise BadInput(f"duration_seconds {duration:g} is not within 0..{_MAX_SECONDS:.0f}")
    return Requested(
        now=now,
        user=user,
        key=key,
        milli=milli,
        mib=mib,
        count=message.count,
        session_id=text(message.session_id, "session_id"),
        label=text(message.label, "label"),
        holder=text(message.holder, "holder"),
        wait=None if wait < 0 or wait > _MAX_SECONDS else wait,
        duration=duration,
        reservation=message.reservation,
        strict=message.strict,
        nodes=message.nodes or "one",  # said by those only who can speak with several workers
    )


def text(value: str, field: str) -> str:
    """A caller's text as others may see it; terminals and logs must not obey it."""
    if len(value) > _MAX_TEXT:
        raise BadInput(f"{field} has {len(value)} characters, more than {_MAX_TEXT}")
    return printable(value)


def is_user(value: str) -> bool:
    """Whether this can be the name of a user: no spaces, nothing that a terminal would obey."""
    return _USER.fullmatch(value) is not None and printable(value) == value


def reason(value: str, default: str) -> str:
    if not value:
        return default
    if value not in REASONS:
        raise BadInput(f"{value[:40]!r} is not a reason; reasons are {', '.join(REASONS)}")
    return value


def node_name(value: str) -> str:
    if not _NODE.fullmatch(value):
        raise BadInput(f"{value[:40]!r} is no node name: letters, digits, '.', '_' and '-', at most 63")
    return value
