"""Jupyter events of the extension: hints for front ends; the REST API is the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from jupyter_gpupool.server.session.session import KernelSession

SESSION_SCHEMA_ID: Final = "https://events.jupyter-gpupool.dev/session/v1"
SESSION_SCHEMA_PATH: Final = Path(__file__).with_name("session.v1.yaml")


def session_event(session: KernelSession) -> dict[str, Any]:
    """The event's data: state and numbers, never names, tokens or hosts (the bus is shared)."""
    record = session.record
    return {
        "kernel_id": session.kernel_id,
        "state": str(record.state),
        "reason": record.reason,
        "share_milli": record.lease.shares[0].milli if record.lease is not None else None,
        "countdown": record.countdown,
    }
