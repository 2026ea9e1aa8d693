"""What code that has got a share should know of it: whether it is all that it asked for."""

from __future__ import annotations

from dataclasses import fields, replace

from gpupool.client.granted_size import exceeds
from gpupool.client.session.state import Session
from gpupool.client.types import Grant
from gpupool.request.forms import command_line
from gpupool.request.gpu_request import GpuRequest

#: What a held share grows by or keeps as it is; its own waits and holds are each request's.
_OF_EACH = frozenset({"share", "count", "nodes", "wait_seconds", "hold", "strict"})


def said_of(named: GpuRequest, record: Session, former: Grant | None, *, hold: bool = False) -> str | None:
    """One sentence; None: it has what it asked for.

    Args:
        named: what the request names, without what the server's settings add.
        record: the session with the share.
        former: what the session held before.
        hold: the request is for the share that stays, not for a cell, which may do with a part.
    """
    if record.lease is None:
        return None
    if former is None or record.lease.lease_id != former.lease_id:
        # A new share says whether the arrays of the one before are gone.
        return record.message
    unused = _unused(named, record)
    if unused:
        return (
            f"This cell uses the share that the kernel holds. {unused} counts for a new share only; %gpu detach gives this one "
            "back."
        )
    if hold and not record.scopes and named.share is not None and exceeds(record.lease, named.share):
        return f"The kernel keeps the larger share that it holds. %gpu resize {named.share} makes it smaller."
    return None


def _unused(named: GpuRequest, record: Session) -> str:
    """The options that a share that is held already cannot follow, as they are written."""
    plain, held = GpuRequest(), record.request or GpuRequest()
    differing = {
        one.name: getattr(named, one.name)
        for one in fields(GpuRequest)
        if one.name not in _OF_EACH
        and getattr(named, one.name) not in (getattr(plain, one.name), getattr(held, one.name))
    }
    return command_line(replace(plain, **differing))
