"""Checks of what callers send, before it reaches the machine. Errors name the value."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from gpupool.filters import parse
from gpupool.model.events import Requested
from gpupool.names import NAME_RULE, is_label, is_name
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.request.forms import of_message
from gpupool.request.option import RequestError
from gpupool.scheduler.fairshare.tree import EVERYBODY, GROUP
from gpupool.scheduler.model import SHARING
from gpupool.sentences.reasons import OF_HOLDERS
from gpupool.shares import MAXIMUM_MIB, WHOLE_DEVICE_MILLI
from gpupool.text import printable

_NAME = re.compile(r".{1,128}")
_USER = re.compile(r"\S{1,128}")
_MAX_TEXT = 256
_MAX_LABELS = 64


class BadInputError(ValueError):
    """A field of a request is out of its bounds; `reason` is the id that clients see."""

    def __init__(self, explanation: str, reason: str = "bad-request") -> None:
        super().__init__(explanation)
        self.reason = reason


def size(milli: int, mib: int) -> tuple[int | None, int | None]:
    """(milli, mib) with exactly one set."""
    if milli and mib:
        raise BadInputError(
            f"both milli {milli} and mib {mib} are given; give one, the other follows", "bad-share"
        )
    if not milli and not mib:
        raise BadInputError(
            "neither milli nor mib is given (both are 0); ask for a share such as 200", "bad-share"
        )
    if milli and not 1 <= milli <= WHOLE_DEVICE_MILLI:
        raise BadInputError(f"milli {milli} is not within 1..{WHOLE_DEVICE_MILLI}", "bad-share")
    if mib and not 1 <= mib <= MAXIMUM_MIB:
        raise BadInputError(f"mib {mib} is not within 1..{MAXIMUM_MIB}", "bad-share")
    return (milli or None), (mib or None)


def request(message: pb.RequestLease, user: str, now: float, groups: tuple[str, ...] = ()) -> Requested:
    """The request as an event. `groups`: of the user.

    Raises:
        BadInputError: a field is out of bounds.
    """
    milli, mib = size(message.milli, message.mib)
    key = message.idempotency_key
    if not _NAME.fullmatch(key) or printable(key) != key:
        raise BadInputError("idempotency_key must have 1..128 printable characters")
    if not is_person(user):
        raise BadInputError(f"{user[:40]!r} is not a user name (1..128 characters, no spaces, and not '*')")
    try:
        asked = of_message(message)
    except RequestError as error:
        raise BadInputError(str(error), error.reason) from None
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
        wait=asked.patience,
        duration=asked.duration_seconds,
        reservation=message.reservation,
        strict=asked.strict,
        nodes=message.nodes or "one",  # said by those only who can speak with several workers
        project=asked.project,
        kind=asked.kind,
        priority=asked.priority or None,
        filters=tuple(parse(one) for one in asked.filters),
        pools=asked.pools,
        isolated=not asked.no_isolation,
        groups=groups,
    )


def text(value: str, field: str) -> str:
    """A caller's text as others may see it; terminals and logs must not obey it."""
    if len(value) > _MAX_TEXT:
        raise BadInputError(f"{field} has {len(value)} characters, more than {_MAX_TEXT}")
    return printable(value)


def is_user(value: str) -> bool:
    """Whether this can be the name of a user: no spaces, nothing that a terminal would obey, no sign of a group.

    ``*`` can: limits are set for it. Nobody may be called so, see :func:`is_person`.
    """
    return is_group(value) and not value.startswith(GROUP)


def is_group(value: str) -> bool:
    """Whether this can be the name of a group of users."""
    return _USER.fullmatch(value) is not None and printable(value) == value


def is_person(value: str) -> bool:
    """Whether a caller may have this name: it must not stand for several."""
    return is_user(value) and value != EVERYBODY


def reason(value: str, default: str, *, admin: bool = False, told: Collection[str] = ()) -> str:
    """A reason that a client may give, or the default.

    Args:
        value: what it gives.
        default: stands for an empty one.
        admin: whether it is an administrator's.
        told: what the pool itself has said of the same end: whoever hands over before a notice is over gives its reason.

    Raises:
        BadInputError: it is none, or the pool's own.
    """
    if not value:
        return default
    allowed = (*OF_HOLDERS, "admin") if admin else OF_HOLDERS
    if value not in allowed and value not in told:
        raise BadInputError(
            f"{value[:40]!r} is not a reason that you may give; those are {', '.join(allowed)}"
        )
    return value


def node_name(value: str) -> str:
    """The name, if it is one.

    Raises:
        BadInputError: it is none.
    """
    if not is_name(value):
        raise BadInputError(f"{value[:40]!r} is no node name: {NAME_RULE}")
    return value


def node_pool(value: str) -> str:
    """The name, if it is one.

    Raises:
        BadInputError: it is none.
    """
    if not is_name(value):
        raise BadInputError(f"{value[:40]!r} is no name of a node pool: {NAME_RULE}")
    return value


def sharing(value: str) -> str:
    """One of `SHARING`; empty: the first of them.

    Raises:
        BadInputError: it is none of them.
    """
    if value and value not in SHARING:
        raise BadInputError(f"sharing {value[:40]!r} is none of {', '.join(SHARING)}")
    return value or SHARING[0]


def labels(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What a node's administrator says of it, in alphabetical order."""
    if len(values) > _MAX_LABELS:
        raise BadInputError(f"{len(values)} labels, more than {_MAX_LABELS}")
    for name in values:
        if not is_label(name):
            raise BadInputError(
                f"{name[:40]!r} is no name of a label: letters, digits, '.', '_' and '-', at most 63"
            )
    return tuple(sorted((name, text(value, f"label {name}")) for name, value in values.items()))
