"""The health report: each check says what is, and what to do about it."""

from __future__ import annotations

from gpupool.pool.shell import PoolShell
from gpupool.pool.view import health, host_rooms
from gpupool.proto.gpupool.v1 import pool_pb2 as pb


def report(pool: PoolShell) -> pb.HealthReport:
    """`ok` is false only when a check fails; a warning leaves the pool usable."""
    checks = [_ledger(pool), _nodes(pool), _devices(pool), _parked(pool), _queue(pool)]
    return pb.HealthReport(ok=all(check.status != "fail" for check in checks), checks=checks)


def _check(name: str, status: str, detail: str, hint: str = "") -> pb.HealthCheck:
    return pb.HealthCheck(name=name, status=status, detail=detail, hint=hint)


def _ledger(pool: PoolShell) -> pb.HealthCheck:
    if pool.ledger_problem:
        hint = "free disk space or repair the file; running leases go on, new ones are refused until then"
        return _check("ledger", "fail", pool.ledger_problem, hint)
    return _check("ledger", "ok", f"{pool.ledger.name} is written")


def _nodes(pool: PoolShell) -> pb.HealthCheck:
    nodes = list(pool.state.nodes.values())
    away = sorted(node.name for node in nodes if node.connection is None)
    if not nodes:
        return _check("nodes", "fail", "no node has ever connected", "start one with `gpupool node`")
    if len(away) == len(nodes):
        return _check(
            "nodes", "fail", f"0 of {len(nodes)} nodes are connected", "look at the node agents' logs"
        )
    if away:
        detail = f"{len(nodes) - len(away)} of {len(nodes)} nodes are connected; away: {', '.join(away)}"
        return _check("nodes", "warn", detail, "look at the agents' logs on these machines")
    return _check("nodes", "ok", f"{len(nodes)} node(s) connected")


def _devices(pool: PoolShell) -> pb.HealthCheck:
    now = pool.clock.now()
    devices = list(pool.state.devices.values())
    sick = [
        f"{device.id}: {why_not}"
        for device in devices
        for healthy, why_not in [health(pool.state, device, pool.timers, now)]
        if not healthy
    ]
    if not devices:
        return _check(
            "devices", "fail", "the pool has 0 devices", "start a node agent on a machine with a GPU"
        )
    detail = f"{len(devices) - len(sick)} of {len(devices)} devices take new shares"
    if not sick:
        return _check("devices", "ok", detail)
    status = "fail" if len(sick) == len(devices) else "warn"
    return _check("devices", status, f"{detail}; {'; '.join(sick[:8])}", "see each device's reason")


def _parked(pool: PoolShell) -> pb.HealthCheck:
    parked = [session for session in pool.state.sessions.values() if session.state == "parked"]
    if not parked:
        return _check("parked sessions", "ok", "there are none")
    lie = {place: sum(session.place == place for session in parked) for place in ("device", "host", "image")}
    stay = sum(bool(session.park_obstacle) for session in parked if session.place == "device")
    rooms = ", ".join(f"{mib} MiB more on {name}" for name, mib in sorted(host_rooms(pool.state).items()))
    detail = (
        f"{lie['device']} on devices ({stay} cannot be moved), {lie['host']} in host memory, "
        f"{lie['image']} on disk; host memory takes {rooms}"
    )
    return _check("parked sessions", "ok", detail, "`gpupool sessions` shows each")


def _queue(pool: PoolShell) -> pb.HealthCheck:
    asks = list(pool.state.asks.values())
    if not asks:
        return _check("queue", "ok", "nobody waits")
    longest = pool.clock.now() - min(ask.since for ask in asks)
    detail = f"{len(asks)} ask(s) wait, the first for {longest:.0f} s"
    return _check("queue", "ok", detail, "`gpupool list-gpus` shows who holds what")
