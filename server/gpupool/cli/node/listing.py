"""`gpupool node list`: the machines that lend GPUs."""

from __future__ import annotations

from rich.console import RenderableType

from gpupool.cli.common import show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.client.admin import AdminClient
from gpupool.client.types import Node


def list_(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List the machines that lend GPUs: their state, node pool, labels, and room for parked sessions.

    \b
    Examples:
      gpupool node list
      gpupool node list --watch
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = await AdminClient(connection).nodes()
        notes = () if found else ("no node has ever connected; start one: gpupool node start",)
        return watch.Shown(_table(found), {"nodes": found}, notes)

    watch.look(work, as_json=json, every=every)


def _table(found: list[Node]) -> RenderableType:
    figures = ("GPUS", "LEASES", "PARK MEMORY LEFT")
    lines = show.table(
        *("NODE", "STATE", "NODE POOL", "SHARING", "LABELS", "ADDRESS", *figures),
        right=figures,
        wrapped=("STATE", "LABELS"),
        less_wanted=("PARK MEMORY LEFT", "SHARING", "ADDRESS", "NODE POOL", "LABELS"),
    )
    for node in found:
        lines.add(
            node.name,
            state(node),
            node.node_pool,
            node.sharing,
            ",".join(f"{name}={value}" for name, value in node.labels.items()) or "-",
            node.address,
            str(node.devices),
            str(node.leases),
            f"{node.park_memory_free_mib} of {node.park_memory_mib} MiB",
        )
    return lines if lines.count else "No node."


def state(node: Node) -> str:
    """``ready``, ``drained (new fans)``, ``lost``, ``away for 12 s``."""
    here = "ready" if node.connected else f"away for {show.seconds(node.silent_seconds)}"
    if node.lost:
        here = f"lost, {here}" if not node.connected else "lost"
    if node.drained:
        drained = f"drained ({node.drain_reason})" if node.drain_reason else "drained"
        return drained if node.connected and not node.lost else f"{drained}, {here}"
    return here
