"""Commands that look: list-gpus, smi, leases, sessions, queue, health."""

from __future__ import annotations

from typing import Annotated

import typer

from gpupool.cli import exits, show
from gpupool.cli.options import Endpoint, Json, TokenFile, client
from gpupool.client import obstacles
from gpupool.client.native import native_directory
from gpupool.client.types import Device, HealthCheck, HealthReport, Lease, QueueEntry, SessionInfo
from gpupool.shares import format_milli


def list_gpus(pool: Endpoint = None, token_file: TokenFile = None, json: Json = False) -> None:
    """List the pool's GPUs and what is free of each.

    \b
    Examples:
      gpupool list-gpus
      gpupool list-gpus --json | jq '.devices[].free_milli'
    """

    async def work() -> list[Device]:
        async with client(pool, token_file) as connection:
            return await connection.devices()

    devices = exits.run_async(work())
    if json:
        show.as_json({"devices": devices})
        return
    figures = ("FREE", "FREE MEMORY", "PARKED", "MEMORY", "SHARES")
    lines = show.table("GPU", "NAME", *figures, "HEALTH", right=figures)
    for device in devices:
        lines.add(
            device.id,
            device.name,
            format_milli(device.free_milli),
            show.mib(device.free_mib),
            show.mib(device.parked_mib),
            show.mib(device.usable_mib),
            str(len(device.shares)),
            "ok" if device.healthy else device.health_reason or "not well",
        )
    show.console().print(lines)
    if not devices:
        exits.say("the pool has no GPU; start a node: gpupool node")


def smi(pool: Endpoint = None, token_file: TokenFile = None, json: Json = False) -> None:
    """Show GPUs, who holds them, and what they use, like nvidia-smi.

    \b
    Examples:
      watch -n1 gpupool smi
    """

    async def work() -> tuple[list[Device], list[SessionInfo], list[QueueEntry]]:
        async with client(pool, token_file) as connection:
            return await connection.devices(), await connection.sessions(), await connection.queue()

    devices, sessions, queue = exits.run_async(work())
    if json:
        show.as_json({"devices": devices, "sessions": sessions, "queue": queue})
        return
    console = show.console()
    figures = ("LENT", "MEMORY USED")
    lines = show.table("GPU", "NAME", *figures, "HEALTH", right=figures)
    for device in devices:
        lent = f"{format_milli(1000 - device.free_milli)} of 1"
        lines.add(device.id, device.name, lent, show.used(device), "ok" if device.healthy else "not well")
    console.print(lines)
    console.print()
    console.print(_session_table(devices, sessions))
    if queue:
        console.print()
        console.print(_queue_table(queue))


def _session_table(devices: list[Device], sessions: list[SessionInfo]) -> object:
    held = {share.session_id: share for device in devices for share in device.shares}
    figures = ("SHARE", "MEMORY USED", "GPU TIME", "IDLE")
    lines = show.table("SESSION", "GPU", "USER", "WHAT", "STATE", *figures, right=figures)
    for session in sessions:
        if session.state == "closed":
            continue
        share = held.get(session.id)
        lines.add(
            session.id[:12],
            ",".join(session.device_ids) or "-",
            session.user,
            session.label or session.holder or "-",
            f"parked ({session.memory_place})" if session.state == "parked" else session.state,
            f"{format_milli(share.milli)} ({share.mib} MiB)" if share else "-",
            show.mib(sum(session.usage.memory_used) // show.MIB),
            f"{session.usage.device_seconds:.1f} s",
            show.seconds(session.usage.idle_seconds),
        )
    return lines if lines.count else "No session."


def _queue_table(queue: list[QueueEntry]) -> object:
    lines = show.table("PLACE", "USER", "WHAT", "ASKS FOR", "WHY", right=("PLACE",))
    for entry in queue:
        asked = f"{format_milli(entry.milli)}" if entry.milli else f"{entry.mib} MiB"
        lines.add(
            str(entry.place),
            entry.user,
            entry.label or entry.holder or "-",
            f"{asked} x {max(entry.count, 1)}",
            entry.reason,
        )
    return lines


def leases(pool: Endpoint = None, token_file: TokenFile = None, json: Json = False) -> None:
    """List the leases that are held now."""

    async def work() -> list[Lease]:
        async with client(pool, token_file) as connection:
            return [lease for lease in await connection.leases() if lease.state != "ended"]

    found = exits.run_async(work())
    if json:
        show.as_json({"leases": found})
        return
    lines = show.table("LEASE", "USER", "WHAT", "SHARE", "STATE", "KIND", "ENDS IN")
    for lease in found:
        lines.add(
            lease.id,
            lease.user,
            lease.label or lease.holder or "-",
            show.shares(lease.shares),
            lease.state,
            "reservation" if lease.reservation else "lease",
            show.until(lease.ends_unix),
        )
    show.console().print(lines)


def sessions(
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    closed: Annotated[bool, typer.Option("--closed", help="Also those that ended in the last hour.")] = False,
) -> None:
    """List sessions, where their memory lies, and what keeps it from being moved.

    \b
    Examples:
      gpupool sessions
      gpupool sessions --json | jq '.sessions[] | {id, memory_place, park_obstacle}'
    """

    async def work() -> list[SessionInfo]:
        async with client(pool, token_file) as connection:
            return await connection.sessions()

    found = [session for session in exits.run_async(work()) if closed or session.state != "closed"]
    if json:
        show.as_json({"sessions": found})
        return
    lines = show.table(
        "SESSION", "USER", "WHAT", "STATE", "GPU", "MEMORY", "LIES IN", "CAP", right=("MEMORY",)
    )
    for session in found:
        lines.add(
            session.id[:12],
            session.user,
            session.label or session.holder or "-",
            session.state,
            ",".join(session.device_ids) or "-",
            show.mib(sum(session.usage.memory_used) // show.MIB),
            session.memory_activity or session.memory_place,
            f"{session.enforcement}{', strict' if session.strict else ''}",
        )
    show.console().print(lines if lines.count else "No session.")
    for session in found:
        for sentence in obstacles.sentences(session.park_obstacle, session.move_obstacle):
            exits.say(f"{session.id[:12]}: {sentence}")


def queue(pool: Endpoint = None, token_file: TokenFile = None, json: Json = False) -> None:
    """List who waits for a share, and why."""

    async def work() -> list[QueueEntry]:
        async with client(pool, token_file) as connection:
            return await connection.queue()

    found = exits.run_async(work())
    if json:
        show.as_json({"queue": found})
    else:
        show.console().print(_queue_table(found))


def health(pool: Endpoint = None, token_file: TokenFile = None, json: Json = False) -> None:
    """Say whether the pool, its nodes and this installation are well.

    Exit code 0: nothing failed; 1: a check failed; 69: the pool does not answer.
    """

    async def work() -> HealthReport:
        async with client(pool, token_file) as connection:
            return await connection.health()

    report = exits.run_async(work())
    checks = (*report.checks, _local_check())
    ok = report.ok and all(check.status != "fail" for check in checks)
    if json:
        show.as_json({"ok": ok, "checks": checks})
    else:
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        lines = show.table("CHECK", "STATUS", "WHAT", "WHAT TO DO")
        for check in checks:
            status = show.coloured(check.status, colours.get(check.status, "white"))
            lines.add(check.name, status, check.detail, check.hint)
        show.console().print(lines)
    if not ok:
        raise typer.Exit(exits.FAILED)


def _local_check() -> HealthCheck:
    native = native_directory()
    if (native / "client" / "libcuda.so.1").exists():
        return HealthCheck("client runtime", "ok", f"installed in {native}", "")
    return HealthCheck("client runtime", "warn", f"not in {native}", "run `make build` in a source checkout")
