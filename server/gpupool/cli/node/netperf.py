"""`gpupool node netperf`: the network between this machine and nodes, as kernels here would have it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer

from gpupool.cli.common import completing, exits, show
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.client.admin import AdminClient
from gpupool.client.errors import PoolRefusedError
from gpupool.client.netperf import (
    ADVISED_GBIT,
    ADVISED_ROUND_TRIP_US,
    Measured,
    NotMeasuredError,
    measure,
)
from gpupool.client.types import Node


@dataclass(frozen=True, slots=True)
class NodeResult:
    """``measured`` None: it could not be; ``problem`` says why."""

    node: str
    address: str
    measured: Measured | None
    problem: str = ""


def netperf(
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NODE|HOST",
            help="Names of nodes, or the addresses that kernels connect to [default: all connected nodes].",
            show_default=False,
            autocompletion=completing.nodes,
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.05, max=3.0, help="Seconds to send in each direction.")
    ] = 0.5,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Measure round trips and throughput between this machine and nodes, on the ports that kernels dial.

    One node at a time, and at each one measurement at a time. Advised are round trips of at most 50 µs
    and at least 10 Gbit/s each way. Exit code 1: a node could not be measured.

    \b
    Examples:
      gpupool node netperf
      gpupool node netperf gpu1 --seconds 2 --json
    """

    async def work() -> list[NodeResult]:
        async with client(pool, token_file) as connection:
            admin = AdminClient(connection)
            chosen = _chosen(await admin.nodes(), nodes or [])
            return [await measure_node(admin, node, seconds=seconds) for node in chosen]

    results = exits.run_async(work())
    if json:
        advice = {"round_trip_us": ADVISED_ROUND_TRIP_US, "gbit": ADVISED_GBIT}
        show.as_json({"advised": advice, "nodes": results})
    else:
        show.console().print(_table(results))
        if any(result.measured is not None and not result.measured.advised for result in results):
            exits.say(
                f"round trips of at most {ADVISED_ROUND_TRIP_US:g} µs and {ADVISED_GBIT:g} Gbit/s each way are advised; "
                "below that, programs with many small kernels wait for the network"
            )
    if any(result.measured is None for result in results):
        raise typer.Exit(exits.FAILED)


async def measure_node(
    admin: AdminClient, node: Node, *, round_trips: int = 1000, seconds: float = 0.5
) -> NodeResult:
    """Measures one node; what goes wrong is part of the result."""
    try:
        meter = await admin.open_meter(node.name)
        measured = await asyncio.to_thread(
            measure, meter.address, meter.ticket, round_trips=round_trips, seconds=seconds
        )
    except (PoolRefusedError, NotMeasuredError) as error:
        return NodeResult(node.name, node.address, None, str(error))
    return NodeResult(node.name, meter.address, measured)


def figures(measured: Measured) -> str:
    """``23 µs (99 %: 41 µs), 31.2 Gbit/s to it, 28.4 Gbit/s from it``."""
    return (
        f"{measured.round_trip_us:.0f} µs (99 %: {measured.round_trip_p99_us:.0f} µs), "
        f"{measured.to_node_gbit:.1f} Gbit/s to it, {measured.from_node_gbit:.1f} Gbit/s from it"
    )


def _chosen(known: list[Node], wanted: list[str]) -> list[Node]:
    if not wanted:
        connected = [node for node in known if node.connected]
        if not connected:
            text = f"none of the pool's {len(known)} nodes is connected" if known else "the pool has no node"
            raise PoolRefusedError("no-node", f"{text}, so there is none to measure")
        return connected
    chosen = []
    for word in wanted:
        found = [node for node in known if word in (node.name, node.address)]
        if not found:
            names = ", ".join(node.name for node in known[:8]) or "none"
            raise PoolRefusedError("unknown-node", f"the pool knows no node {word[:64]!r}; it knows {names}")
        chosen += [node for node in found if node not in chosen]
    return chosen


def _table(results: list[NodeResult]) -> show.Lines:
    columns = ("ROUND TRIP", "99 %", "TO NODE", "FROM NODE")
    lines = show.table("NODE", "ADDRESS", *columns, "WELL", right=columns, wrapped=("WELL",))
    for result in results:
        measured = result.measured
        if measured is None:
            lines.add(result.node, result.address, "-", "-", "-", "-", result.problem)
            continue
        lines.add(
            result.node,
            result.address,
            f"{measured.round_trip_us:.0f} µs",
            f"{measured.round_trip_p99_us:.0f} µs",
            f"{measured.to_node_gbit:.1f} Gbit/s",
            f"{measured.from_node_gbit:.1f} Gbit/s",
            "as advised" if measured.advised else "below the advice",
        )
    return lines
