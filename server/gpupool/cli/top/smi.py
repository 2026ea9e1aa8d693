"""`gpupool smi`: GPUs, who holds them and what they use, on one screen."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType

from gpupool.cli.common import show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.cli.common.words import NO_GPU
from gpupool.cli.pool.queue import left_out, queue_table
from gpupool.client.types import Device, Lease, SessionInfo
from gpupool.shares import format_share


def smi(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """Show GPUs, who holds them, and what they use, like nvidia-smi.

    UTIL is the part of the last seconds in which the GPU worked. A kernel that runs for more than 2 s is named.

    \b
    Examples:
      gpupool smi
      gpupool smi --watch 1
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            devices, sessions = await connection.devices(), await connection.sessions()
            leases = await connection.leases()
            queue = await connection.queue()
        parts: list[RenderableType] = [_device_table(devices), "", _session_table(devices, sessions, leases)]
        if queue:
            parts += ["", queue_table(queue)]
        data = {"devices": devices, "sessions": sessions, "leases": leases, "queue": queue}
        notices = (
            f"{session.id[:12]}: {session.notice.explanation}" for session in sessions if session.notice
        )
        notes = (*notices, *left_out(queue))
        return watch.Shown(Group(*parts), data, notes if devices else (NO_GPU, *notes))

    watch.look(work, as_json=json, every=every)


def _device_table(devices: list[Device]) -> RenderableType:
    figures = ("UTIL", "HELD", "MEMORY USED")
    lines = show.table("GPU", "NAME", *figures, "HEALTH", right=figures, wrapped=("NAME", "HEALTH"))
    for device in devices:
        held = f"{format_share(1000 - device.free_milli)} of 1"
        health = "ok" if device.healthy else device.health_reason or "not well"
        lines.add(
            device.id, show.device_name(device), show.percent(device.busy), held, show.used(device), health
        )
    return lines if lines.count else "No GPU."


def _session_table(
    devices: list[Device], sessions: list[SessionInfo], leases: Iterable[Lease]
) -> RenderableType:
    held = {share.session_id: share for device in devices for share in device.shares}
    kinds = {lease.session_id: lease.kind for lease in leases}
    figures = ("UTIL", "SHARE", "MEMORY USED", "GPU TIME", "IDLE")
    lines = show.table(
        *("SESSION", "GPU", "USER", "PROJECT", "KIND", "WHAT", "STATE", *figures),
        right=figures,
        wrapped=("GPU", "WHAT", "STATE"),
        less_wanted=("PROJECT", "KIND", "IDLE", "GPU TIME", "MEMORY USED", "WHAT"),
    )
    for session in sessions:
        if session.state == "closed":
            continue
        share = held.get(session.id)
        lines.add(
            session.id[:12],
            ", ".join(session.device_ids) or "-",
            session.user,
            session.project or "-",
            kinds.get(session.id, "-"),
            session.label or session.holder or "-",
            show.session_state(session, place=True),
            show.session_busy(session),
            f"{format_share(share.milli)} ({share.mib} MiB)" if share else "-",
            show.mib(sum(session.usage.memory_used) // show.MIB),
            f"{session.usage.device_seconds:.1f} s",
            show.seconds(session.usage.idle_seconds),
        )
    return lines if lines.count else "No session."
