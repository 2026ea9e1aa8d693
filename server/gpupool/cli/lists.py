"""Commands that list: list-gpus, leases, sessions, queue."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import RenderableType

from gpupool.cli import show, watch
from gpupool.cli.options import Endpoint, Json, TokenFile, client
from gpupool.client import at_work
from gpupool.client.types import Device, Lease, QueueEntry, SessionInfo
from gpupool.sentences import obstacles
from gpupool.shares import format_milli

NO_GPU = "the pool has no GPU; start a node: gpupool node"


def list_gpus(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List the pool's GPUs and what is free of each.

    \b
    Examples:
      gpupool list-gpus
      gpupool list-gpus --json | jq '.devices[].free_milli'
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            devices = await connection.devices()
        return watch.Shown(_device_table(devices), {"devices": devices}, () if devices else (NO_GPU,))

    watch.look(work, as_json=json, every=every)


def _device_table(devices: list[Device]) -> RenderableType:
    figures = ("UTIL", "FREE", "FREE MEMORY", "PARKED", "MEMORY", "SHARES")
    lines = show.table(
        *("GPU", "NAME", "NODE POOL", *figures, "LENT AS", "DRIVER", "HEALTH"),
        right=figures,
        wrapped=("NAME", "HEALTH"),
        less_wanted=("LENT AS", "DRIVER", "NODE POOL", "PARKED", "SHARES"),
    )
    for device in devices:
        lines.add(
            device.id,
            device.name,
            device.node_pool,
            show.percent(device.busy),
            format_milli(device.free_milli),
            show.mib(device.free_mib),
            show.mib(device.parked_mib),
            show.mib(device.usable_mib),
            str(len(device.shares)),
            device.sharing,
            device.driver or "-",
            "ok" if device.healthy else device.health_reason or "not well",
        )
    return lines if devices else "No GPU."


def leases(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List the leases that are held now.

    KEPT says whether a lease may be taken back for others as things stand.

    \b
    Examples:
      gpupool leases
      gpupool leases --watch 5
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = [lease for lease in await connection.leases() if lease.state != "ended"]
        return watch.Shown(_lease_table(found), {"leases": found})

    watch.look(work, as_json=json, every=every)


def _lease_table(found: list[Lease]) -> RenderableType:
    lines = show.table(
        *("LEASE", "USER", "PROJECT", "WHAT", "SHARE", "STATE", "KIND", "KEPT", "ENDS IN"),
        wrapped=("WHAT", "SHARE", "STATE"),
        less_wanted=("PROJECT", "KEPT", "KIND", "ENDS IN", "WHAT"),
    )
    for lease in found:
        lines.add(
            lease.id,
            lease.user,
            lease.project or "-",
            lease.label or lease.holder or "-",
            show.shares(lease.shares),
            show.state(lease.state, lease.notice, at_work.in_words(lease)),
            f"{lease.kind}{', reserved' if lease.reservation else ''}",
            "protected" if lease.protected else "may be asked back",
            show.until(lease.ends_unix),
        )
    return lines if lines.count else "No lease is held."


def sessions(
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    closed: Annotated[bool, typer.Option("--closed", help="Also those that ended in the last hour.")] = False,
    every: watch.Watch = None,
) -> None:
    """List sessions, where their memory lies, and what keeps it from being moved.

    \b
    Examples:
      gpupool sessions
      gpupool sessions --json | jq '.sessions[] | {id, memory_place, park_obstacle}'
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = [s for s in await connection.sessions() if closed or s.state != "closed"]
        notes = [
            f"{session.id[:12]}: {sentence}"
            for session in found
            for sentence in obstacles.sentences(session.park_obstacle, session.move_obstacle)
        ]
        notes += [f"{session.id[:12]}: {session.notice.explanation}" for session in found if session.notice]
        return watch.Shown(_session_table(found), {"sessions": found}, tuple(notes))

    watch.look(work, as_json=json, every=every)


def _session_table(found: list[SessionInfo]) -> RenderableType:
    lines = show.table(
        *("SESSION", "USER", "PROJECT", "WHAT", "STATE", "GPU", "MEMORY", "LIES IN", "CAP"),
        right=("MEMORY",),
        wrapped=("WHAT", "STATE"),
        less_wanted=("PROJECT", "CAP", "LIES IN", "MEMORY", "WHAT"),
    )
    for session in found:
        lines.add(
            session.id[:12],
            session.user,
            session.project or "-",
            session.label or session.holder or "-",
            show.session_state(session),
            ",".join(session.device_ids) or "-",
            show.mib(sum(session.usage.memory_used) // show.MIB),
            session.memory_activity or session.memory_place,
            f"{session.enforcement}{', strict' if session.strict else ''}",
        )
    return lines if lines.count else "No session."


def queue(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List who waits for a share, and why. `gpupool explain REQUEST` says what would help.

    \b
    Examples:
      gpupool queue
      gpupool queue --watch
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = await connection.queue()
        return watch.Shown(queue_table(found), {"queue": found})

    watch.look(work, as_json=json, every=every)


def queue_table(queue: list[QueueEntry]) -> RenderableType:
    """The requests that wait, in their order."""
    lines = show.table(
        *("PLACE", "REQUEST", "USER", "PROJECT", "WHAT", "ASKS FOR", "ABOUT", "WHY"),
        right=("PLACE",),
        less_wanted=("PROJECT", "WHAT"),
    )
    for entry in queue:
        asked = f"{format_milli(entry.milli)}" if entry.milli else f"{entry.mib} MiB"
        lines.add(
            str(entry.place),
            show.request_name(entry.id) or "-",
            entry.user,
            entry.project or "-",
            entry.label or entry.holder or "-",
            f"{asked} x {max(entry.count, 1)}",
            show.seconds(entry.eta_seconds),
            entry.reason,
        )
    return lines if lines.count else "Nobody waits."
