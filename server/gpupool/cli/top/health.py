"""`gpupool health`: whether the pool, its nodes, the network to them and this installation are well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from gpupool.cli.common import exits, show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.cli.node import netperf
from gpupool.cli.top import data_ports, pool_servers
from gpupool.client.admin import AdminClient
from gpupool.client.agreement import MOST_SKEW, own_version
from gpupool.client.endpoint import parse_endpoints
from gpupool.client.native import native_directory
from gpupool.client.netperf import ADVISED_GBIT, ADVISED_ROUND_TRIP_US
from gpupool.client.types import HealthCheck, HealthReport, Node
from gpupool.node.address import reaches_only_here

#: A health report measures no more nodes than this; `gpupool node netperf` measures all.
_MOST_NODES: Final = 4
_ROUND_TRIPS: Final = 200
_MEASURE_SECONDS: Final = 0.1


def health(
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    network: Annotated[
        bool,
        typer.Option(
            "--network/--no-network",
            help="Also measure the network to nodes, for a moment each, and try the ports of their --port-range.",
        ),
    ] = True,
    every: watch.Watch = None,
) -> None:
    """Say whether the pool, its nodes, the network to them and this installation are well.

    Each check is ok, warn or fail, with what to do about it. With --watch the network is measured once.
    Of a pool with standby servers, name all: each is asked which of them leads.
    Exit code 0: nothing failed; 1: a check failed, or no server leads; 69: the pool does not answer.

    \b
    Examples:
      gpupool health
      gpupool health --json | jq '.checks[] | select(.status != "ok")'
    """
    measured: list[HealthCheck] = []

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            asked_servers = await pool_servers.ask(connection, parse_endpoints(connection.endpoint))
            servers = pool_servers.checks(asked_servers)
            if pool_servers.nobody_leads(asked_servers):
                lines = (*servers, _runtime())
                data = {"ok": False, "version": "", "checks": lines}
                return watch.Shown(_table(lines), data, code=exits.FAILED)
            asked = time.time()
            report = await connection.health()
            local = [_runtime(), _version(report), _clock(report, asked, time.time())]
            if network and not measured:
                admin = AdminClient(connection)
                nodes = [node for node in await admin.nodes() if node.connected][:_MOST_NODES]
                measured.append(await _network(admin, nodes))
                measured.extend(await data_ports.checks(admin, nodes))
        checks = (*servers, *report.checks, *local, *measured)
        ok = report.ok and all(check.status != "fail" for check in checks)
        data = {"ok": ok, "version": report.version, "checks": checks}
        return watch.Shown(_table(checks), data, code=exits.OK if ok else exits.FAILED)

    watch.look(work, as_json=json, every=every)


def _table(checks: tuple[HealthCheck, ...]) -> show.Lines:
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    lines = show.table("CHECK", "STATUS", "WHAT", "WHAT TO DO", wrapped=("WHAT", "WHAT TO DO"))
    for check in checks:
        status = show.coloured(check.status, colours.get(check.status, "white"))
        lines.add(check.name, status, check.detail, check.hint if check.status != "ok" else "")
    return lines


def _runtime() -> HealthCheck:
    native = native_directory()
    if (native / "client" / "libcuda.so.1").exists():
        return HealthCheck("client runtime", "ok", f"installed in {native}", "")
    hint = "install a wheel for this platform; in a source checkout run `make build`"
    return HealthCheck("client runtime", "warn", f"not in {native}", hint)


def _version(report: HealthReport) -> HealthCheck:
    here, there = own_version(), report.version
    if here == there:
        return HealthCheck("version here", "ok", f"{here}, as the pool", "")
    detail = f"this machine has gpupool {here}, the pool {there}"
    return HealthCheck("version here", "warn", detail, "install one version everywhere, the pool first")


def _clock(report: HealthReport, asked: float, answered: float) -> HealthCheck:
    # The pool read its clock between the two.
    ahead = min(report.now_unix - asked, report.now_unix - answered, key=abs) if report.now_unix else 0.0
    if abs(ahead) <= MOST_SKEW:
        return HealthCheck("clock here", "ok", f"within {MOST_SKEW:g} s of the pool's", "")
    detail = f"the pool's clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    return HealthCheck(
        "clock here", "warn", detail, "run NTP on both: times in lists and reports are the pool's"
    )


async def _network(admin: AdminClient, nodes: Sequence[Node]) -> HealthCheck:
    if not nodes:
        return HealthCheck("network", "warn", "no node is connected, so nothing was measured", "")
    said, slow, failed, tunnel = [], False, False, False
    for node in nodes:
        result = await netperf.measure_node(admin, node, round_trips=_ROUND_TRIPS, seconds=_MEASURE_SECONDS)
        if result.measured is None:
            failed, tunnel = True, tunnel or reaches_only_here(node.address)
            said.append(f"{node.name}: {result.problem}")
            continue
        here = result.measured.here
        slow = slow or not (here or result.measured.advised)
        note = ""
        if here:
            note = "; on this machine, where kernels use shared memory"
        elif reaches_only_here(node.address):
            note = f"; behind a tunnel that ends here at {node.address}"
        said.append(f"{node.name}: {netperf.figures(result.measured)}{note}")
        await asyncio.sleep(0)
    detail = "; ".join(said)
    if failed:
        hint = "kernels here may not reach that node: look at its --listen-host and at firewalls"
        if tunnel:
            hint += f"; where it is reached by SSH, {data_ports.FORWARD}"
        return HealthCheck("network", "warn", detail, hint)
    if slow:
        hint = (
            f"{ADVISED_ROUND_TRIP_US:g} µs and {ADVISED_GBIT:g} Gbit/s or better are advised; programs with many small "
            "kernels will wait for the network. `gpupool node netperf` measures for longer"
        )
        return HealthCheck("network", "warn", detail, hint)
    return HealthCheck("network", "ok", detail, "")
