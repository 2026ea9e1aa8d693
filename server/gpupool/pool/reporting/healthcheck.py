"""The health report: each check says what is, and what to do about it."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpupool.client.agreement import own_version
from gpupool.ledger.servers import ServerRow
from gpupool.model.node_records import NodeRecord
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.model.holds import health, is_given_back
from gpupool.pool.model.view import host_rooms
from gpupool.pool.nodes.reports import together
from gpupool.pool.reporting.lenders import Lender, none_now, providers
from gpupool.proto.gpupool.v1 import pool_pb2 as pb

#: The pool stops granting when the ledger's disk is full.
LITTLE_DISK_MIB = 1024
#: A standby that was not seen for so long may be gone, seconds.
STANDBY_SILENT = 10.0
NO_DISK_MIB = 64
#: The part of its descriptors from which on the server warns.
MANY_FILES = 0.8
_OWN_FILES = Path("/proc/self/fd")


async def report(
    pool: PoolShell, servers: Sequence[ServerRow], lenders: Sequence[Lender] = ()
) -> pb.HealthReport:
    """`ok` is false only when a check fails; a warning leaves the pool usable. `servers`, `lenders`: see `PoolService`."""
    nodes = await pool.node_checks.of(
        {node.name: node.connection for node in pool.state.nodes.values() if node.connection is not None}
    )
    version = own_version()
    checks = [
        _ledger(pool),
        _ledger_disk(pool),
        _connections(),
        _servers(servers),
        _settings(pool),
        *([providers(lenders)] if lenders else []),
        _nodes(pool, lenders),
        _drained(pool),
        _consolidation(pool),
        _devices(pool, lenders),
        _drivers(pool),
        _parked(pool),
        _queue(pool),
        _quotas(pool),
        *together(nodes, version),
    ]
    return pb.HealthReport(
        ok=all(check.status != "fail" for check in checks),
        checks=checks,
        version=version,
        now_unix=time.time(),
    )


def _check(name: str, status: str, detail: str, hint: str = "") -> pb.HealthCheck:
    return pb.HealthCheck(name=name, status=status, detail=detail, hint=hint)


def _ledger(pool: PoolShell) -> pb.HealthCheck:
    if pool.ledger_problem:
        hint = "free disk space or repair the file; running leases go on, new ones are refused until then"
        return _check("ledger", "fail", pool.ledger_problem, hint)
    return _check("ledger", "ok", f"{pool.ledger.name} is written")


def _ledger_disk(pool: PoolShell) -> pb.HealthCheck:
    name = "ledger disk"
    file = pool.ledger.database.path
    if file is None:
        return _check(name, "ok", "the ledger is in a database server, which looks after its own disk")
    folder = file.parent
    free = shutil.disk_usage(folder).free >> 20
    detail = f"{free} MiB free for {folder}"
    if free < NO_DISK_MIB:
        return _check(name, "fail", detail, "free some: a pool that cannot write grants nothing")
    if free < LITTLE_DISK_MIB:
        return _check(name, "warn", detail, "free some, before the pool cannot write any more")
    return _check(name, "ok", detail)


def _connections() -> pb.HealthCheck:
    """Each connection is an open file; without a free one nobody new gets through, and the ledger may not be opened again."""
    name = "open files"
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = sum(1 for _ in _OWN_FILES.iterdir())
    except OSError as error:
        return _check(name, "ok", f"of the pool server, {most} at most; they cannot be counted: {error}")
    detail = f"{used} of {most} descriptors of the pool server are in use"
    if used < most * MANY_FILES:
        return _check(name, "ok", detail)
    hint = "see who connects (`ss -tn`), keep others out with a firewall, or raise LimitNOFILE of its service"
    return _check(name, "warn", detail, hint)


def _servers(servers: Sequence[ServerRow]) -> pb.HealthCheck:
    name = "pool servers"
    if not servers:
        return _check(name, "ok", "one; a ledger in a file has no standby")
    leader, others = servers[0], servers[1:]
    leads = f"{leader.name} ({leader.address}) leads, epoch {leader.epoch}"
    there = [row for row in others if row.silent_seconds < STANDBY_SILENT]
    away = [row for row in others if row.silent_seconds >= STANDBY_SILENT]
    if there:
        leads += "; standing by: " + _some(f"{row.name} ({row.address})" for row in there)
    if away:
        detail = "; silent: " + _some(
            f"{row.name} ({row.address}) for {row.silent_seconds:.0f} s" for row in away
        )
        return _check(name, "warn", leads + detail, "start `gpupool pool serve --standby` there again")
    if not there:
        return _check(name, "ok", f"{leads}; there is no standby")
    older = [row.name for row in others if row.version != leader.version]
    if older:
        return _check(
            name, "warn", f"{leads}; another version on {_some(older)}", "install one version on all"
        )
    return _check(name, "ok", leads)


def _settings(pool: PoolShell) -> pb.HealthCheck:
    if not pool.left_out:
        return _check("settings", "ok", "all that they name is in use")
    detail = "; ".join(f"without {what}: {why}" for what, why in sorted(pool.left_out.items()))
    return _check("settings", "fail", detail, "mend them, and start this server again")


def _nodes(pool: PoolShell, lenders: Sequence[Lender]) -> pb.HealthCheck:
    now = pool.clock.now()
    nodes = sorted(_expected(pool), key=lambda node: node.name)
    away = [node for node in nodes if node.connection is None]
    silent = [
        node
        for node in nodes
        if node.connection is not None and now - node.last_answered > pool.timers.suspect
    ]
    if not nodes and lenders:
        return none_now("nodes", lenders, bool(pool.state.requests))
    if not nodes:
        return _check("nodes", "fail", "no node has ever connected", "start one with `gpupool node start`")
    if len(away) == len(nodes):
        return _check(
            "nodes", "fail", f"0 of {len(nodes)} nodes are connected", "look at the node agents' logs"
        )
    if away or silent:
        detail = f"{len(nodes) - len(away)} of {len(nodes)} nodes are connected"
        if away:
            detail += f"; away: {_some(node.name for node in away)}"
        if silent:
            detail += "; silent: " + _some(
                f"{node.name} for {now - node.last_answered:.0f} s" for node in silent
            )
        return _check("nodes", "warn", detail, "look at the agents' logs on these machines")
    return _check("nodes", "ok", f"{len(nodes)} node(s) connected")


def _expected(pool: PoolShell) -> list[NodeRecord]:
    """All nodes but those that have been given back, which are known until their shares are free for sure."""
    return [node for node in pool.state.nodes.values() if not node.given_back]


def _drained(pool: PoolShell) -> pb.HealthCheck:
    drained = sorted((node.name, node.drain_reason) for node in _expected(pool) if node.drained)
    if not drained:
        return _check("drained nodes", "ok", "there are none")
    detail = _some(f"{name} ({reason})" if reason else name for name, reason in drained)
    return _check(
        "drained nodes", "warn", detail, "`gpupool node drain NODE --undo` lets one take leases again"
    )


def _consolidation(pool: PoolShell) -> pb.HealthCheck:
    choice = pool.machine.consolidate
    detail = f"{choice.value}: {choice.sentence(pool.timers.min_run)}"
    return _check("consolidation", "ok", detail, "`gpupool pool serve --consolidate idle|any|off` chooses")


def _devices(pool: PoolShell, lenders: Sequence[Lender]) -> pb.HealthCheck:
    now = pool.clock.now()
    devices = [device for device in pool.state.devices.values() if not is_given_back(pool.state, device)]
    sick = [
        f"{device.id}: {why_not}"
        for device in devices
        for healthy, why_not in [health(pool.state, device, pool.timers, now)]
        if not healthy
    ]
    if not devices and lenders:
        return none_now("devices", lenders, bool(pool.state.requests))
    if not devices:
        return _check(
            "devices", "fail", "the pool has 0 devices", "start a node agent on a machine with a GPU"
        )
    detail = f"{len(devices) - len(sick)} of {len(devices)} devices take new shares"
    if not sick:
        return _check("devices", "ok", detail)
    status = "fail" if len(sick) == len(devices) else "warn"
    return _check("devices", status, f"{detail}; {_some(sick)}", "see each device's reason")


def _drivers(pool: PoolShell) -> pb.HealthCheck:
    """Sessions move between devices of one kind: with different drivers some cannot."""
    nodes_of: dict[str, set[str]] = {}
    for device in pool.state.devices.values():
        if device.driver and not device.software and not is_given_back(pool.state, device):
            nodes_of.setdefault(device.driver, set()).add(device.node)
    if len(nodes_of) <= 1:
        detail = f"all GPUs have {next(iter(nodes_of))}" if nodes_of else "no node has an NVIDIA driver"
        return _check("drivers", "ok", detail)
    detail = "; ".join(f"{version} on {_some(sorted(nodes))}" for version, nodes in sorted(nodes_of.items()))
    hint = "give all nodes one version: a session that moves to another may be refused there"
    return _check("drivers", "warn", detail, hint)


def _parked(pool: PoolShell) -> pb.HealthCheck:
    parked = [session for session in pool.state.sessions.values() if session.state == "parked"]
    if not parked:
        return _check("parked sessions", "ok", "there are none")
    lie = {place: sum(session.place == place for session in parked) for place in ("device", "host", "image")}
    stay = sum(bool(session.park_obstacle) for session in parked if session.place == "device")
    host = host_rooms(pool.state)
    names = sorted(node.name for node in _expected(pool))
    rooms = ", ".join(f"{host[name]} MiB more on {name}" for name in names)
    detail = (
        f"{lie['device']} on devices ({stay} cannot be moved), {lie['host']} in host memory, "
        f"{lie['image']} on disk; host memory takes {rooms}"
    )
    return _check("parked sessions", "ok", detail, "`gpupool session list` shows each")


def _queue(pool: PoolShell) -> pb.HealthCheck:
    requests = list(pool.state.requests.values())
    if not requests:
        return _check("queue", "ok", "nobody waits")
    longest = pool.clock.now() - min(request.since for request in requests)
    detail = f"{len(requests)} request(s) wait, the first for {longest:.0f} s"
    return _check("queue", "ok", detail, "`gpupool pool queue` shows why, `gpupool explain` what would help")


def _some(items: Iterable[str], most: int = 8) -> str:
    """The first few, and how many more there are."""
    listed = list(items)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return "; ".join(listed[:most]) + more if more else ", ".join(listed)


def _quotas(pool: PoolShell) -> pb.HealthCheck:
    """Users are only counted: their limits are their own business and the administrators'."""
    near = pool.alerts.raised
    if not near:
        return _check("quotas", "ok", f"none is used to {pool.alerts.percent} % or more")
    said = [str(alert.said()) for alert in near if alert.subject == "project"][:8]
    users = len({alert.name for alert in near if alert.subject == "user"})
    if users:
        said.append(f"{users} user(s) have nearly used up a limit")
    hint = "`gpupool project list`, `gpupool quota list` and `gpupool pool audit --kind alert` say more"
    return _check("quotas", "warn", "; ".join(said), hint)
