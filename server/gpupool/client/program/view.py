"""What a keeper answers of a program's session and of the pool: in the words in which a Jupyter server tells a kernel."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any

from gpupool.client.errors import GpupoolError
from gpupool.client.granted_size import describe
from gpupool.client.pool import PoolClient, queue_of
from gpupool.client.program.session import ProgramSession
from gpupool.client.reasons import COMES_BACK
from gpupool.client.session.call_message import call_message
from gpupool.client.session.state import HOLDING
from gpupool.client.types import Device, Usage


def session_view(session: ProgramSession) -> dict[str, Any]:
    """The session of the program, as JSON."""
    record = session.record
    holds = record.state in HOLDING
    grant = record.lease if holds else None
    place, notice, usage = record.queue, record.notice, session.usage
    return {
        "state": str(record.state),
        "reason": None if holds else record.reason,
        "message": None if holds else call_message(record),
        "held": record.hold is not None,
        "by": record.by if holds else None,
        "session_id": record.session_id,
        "description": describe(grant) if grant is not None else None,
        "share": (
            {"milli": grant.shares[0].milli, "mib": grant.shares[0].mib, "count": len(grant.shares)}
            if grant is not None
            else None
        ),
        "software": grant.software if grant is not None else False,
        "queue": (
            {"place": place.place, "reason": place.reason} if place is not None and place.place else None
        ),
        "notice": (
            {
                "seconds_left": round(notice.seconds_left),
                "reason": notice.reason,
                "returns": notice.reason in COMES_BACK,
            }
            if notice is not None
            else None
        ),
        "usage": _usage_view(usage) if usage is not None and holds else None,
    }


def _usage_view(usage: Usage) -> dict[str, Any]:
    return {
        "device_seconds": usage.device_seconds,
        "calls": usage.calls,
        "asks": usage.asks,
        "memory_bytes": sum(usage.memory_used),
        "memory_peak_bytes": sum(usage.memory_peak),
        "work": usage.work,
        "kernel": usage.kernel,
        "work_seconds": usage.work_seconds,
        "failure": usage.failure,
        "failed_kernel": usage.failed_kernel,
    }


async def pool_view(pool: PoolClient, holder: str) -> dict[str, Any]:
    """Devices, shares and queue; a pool that does not answer is a view too, with ``ok`` false.

    ``holder``: what it has is shown as ``mine``.
    """
    try:
        devices, queue, lenders = await asyncio.gather(pool.devices(), queue_of(pool), pool.lenders())
    except GpupoolError as error:
        return {
            "ok": False,
            "error": str(error),
            "devices": [],
            "queue": [],
            "queue_left_out": None,
            "lenders": [],
        }
    entries = [{**asdict(entry), "mine": entry.holder == holder} for entry in queue or ()]
    shown = [_device_view(device, holder) for device in devices]
    rest = None if queue is None else queue.left_out
    return {"ok": True, "devices": shown, "queue": entries, "queue_left_out": rest, "lenders": lenders}


def _device_view(device: Device, holder: str) -> dict[str, Any]:
    shares = [{**asdict(share), "mine": share.holder == holder} for share in device.shares]
    plain = replace(device, profile="", shares=(), labels={})
    return {**asdict(plain), "shares": shares}
