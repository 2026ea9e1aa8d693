"""Figures of the pool as it is now: devices, nodes, projects, users, the queue.

What is labelled by user is bounded: the `MAXIMUM_USERS` who hold or wait for most have rows of their own, all others are
one row, ``(others)``. Everything else is bounded by what an administrator has set up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from gpupool.model.state import State
from gpupool.pool.model.holds import health, is_given_back, is_offered
from gpupool.pool.model.timers import Timers
from gpupool.pool.model.view import host_rooms, pool_view, used_bytes
from gpupool.pool.projects import accounts, limit_rules
from gpupool.pool.projects.standing_view import with_requests
from gpupool.scheduler.fairshare import Standings
from gpupool.scheduler.model import Quota
from gpupool.shares import WHOLE_DEVICE_MILLI

#: So many users have figures of their own.
MAXIMUM_USERS: Final = 100
OTHERS: Final = "(others)"


def state_metrics(state: State, timers: Timers, quotas: Mapping[str, Quota], now: float) -> Iterator[Metric]:
    """All of them. Quantities are milli-GPU and MiB, as everywhere in the pool.

    Args:
        state: the pool as it is.
        timers: how long everything lasts.
        quotas: limits of users that the pool was started with.
        now: the pool's boot-time clock, seconds.
    """
    yield from _devices(state, timers, now)
    yield from _nodes(state, now)
    yield from _leases(state, now)
    there = with_requests(state, timers, now)
    yield from _projects(there)
    yield from _users(state, quotas, now)


def _devices(state: State, timers: Timers, now: float) -> Iterator[Metric]:
    view = {device.id: device for device in pool_view(state, timers, {}, now).devices}
    used = used_bytes(state)
    labels = ["device", "node"]
    free = GaugeMetricFamily("gpupool_device_free_milli", "milli-GPU not taken", labels=labels)
    free_mib = GaugeMetricFamily("gpupool_device_free_mib", "MiB not taken", labels=labels)
    allocated = GaugeMetricFamily(
        "gpupool_device_allocated_milli", "milli-GPU that leases take", labels=labels
    )
    allocated_mib = GaugeMetricFamily("gpupool_device_allocated_mib", "MiB that leases take", labels=labels)
    memory = GaugeMetricFamily(
        "gpupool_device_memory_used_bytes",
        "what memory of sessions lies there, as last reported",
        labels=labels,
    )
    healthy = GaugeMetricFamily("gpupool_device_healthy", "1: takes new shares", labels=labels)
    milli, mib, modes = _taken(state)
    for device in state.devices.values():
        if device.id not in view or is_given_back(state, device):
            continue
        row = [device.id, device.node]
        free.add_metric(row, max(0, view[device.id].free_milli))
        free_mib.add_metric(row, max(0, view[device.id].free_mib))
        allocated.add_metric(row, milli[device.id])
        allocated_mib.add_metric(row, mib[device.id])
        memory.add_metric(row, used.get(device.id, 0))
        healthy.add_metric(row, float(health(state, device, timers, now)[0]))
    yield from (free, free_mib, allocated, allocated_mib, memory, healthy)
    here = [device.id for device in state.devices.values() if is_offered(state, device)]
    counts = Counter(modes.get(name, "free") for name in here)
    devices = GaugeMetricFamily(
        "gpupool_devices", "devices that nodes offer, by how they are lent", labels=["mode"]
    )
    lent = GaugeMetricFamily(
        "gpupool_allocated_milli",
        "milli-GPU that leases take, on devices lent whole and on shared ones",
        labels=["mode"],
    )
    for mode in ("whole", "shared", "free"):
        devices.add_metric([mode], counts[mode])
    for mode in ("whole", "shared"):
        lent.add_metric([mode], sum(milli[name] for name in modes if modes[name] == mode))
    yield from (devices, lent)
    yield GaugeMetricFamily(
        "gpupool_capacity_milli",
        "milli-GPU of all devices that nodes offer",
        value=WHOLE_DEVICE_MILLI * len(here),
    )


def _taken(state: State) -> tuple[Counter[str], Counter[str], Mapping[str, str]]:
    """(milli-GPU, MiB, whether it is lent whole or shared) of each device that has leases."""
    milli: Counter[str] = Counter()
    mib: Counter[str] = Counter()
    modes: dict[str, str] = {}
    for lease in state.leases.values():
        for share in lease.taken() if lease.holds else ():
            milli[share.device_id] += share.milli
            mib[share.device_id] += share.mib
            modes[share.device_id] = "whole" if share.milli == WHOLE_DEVICE_MILLI else "shared"
    return milli, mib, modes


def _nodes(state: State, now: float) -> Iterator[Metric]:
    connected = GaugeMetricFamily("gpupool_node_connected", "1: its agent is connected", labels=["node"])
    drained = GaugeMetricFamily(
        "gpupool_node_drained", "1: takes no new leases, by an administrator", labels=["node"]
    )
    lost = GaugeMetricFamily(
        "gpupool_node_lost", "1: silent for so long that its leases have ended", labels=["node"]
    )
    silent = GaugeMetricFamily("gpupool_node_silent_seconds", "since its last heartbeat", labels=["node"])
    here = [node for node in state.nodes.values() if not node.given_back]
    for node in here:
        connected.add_metric([node.name], float(node.connection is not None))
        drained.add_metric([node.name], float(node.drained))
        lost.add_metric([node.name], float(node.lost))
        silent.add_metric([node.name], max(0.0, now - node.last_answered))
    whole = GaugeMetricFamily(
        "gpupool_node_park_memory_mib", "host memory for parked sessions", labels=["node"]
    )
    for node in here:
        whole.add_metric([node.name], node.park_memory_mib)
    room = GaugeMetricFamily(
        "gpupool_node_park_memory_free_mib", "host memory left for parked sessions", labels=["node"]
    )
    rooms = host_rooms(state)
    for node in here:
        room.add_metric([node.name], rooms[node.name])
    yield from (connected, drained, lost, silent, whole, room)


def _leases(state: State, now: float) -> Iterator[Metric]:
    parked = [session.place for session in state.sessions.values() if session.state == "parked"]
    yield _counts("gpupool_parked_sessions", "parked sessions by place of memory", parked, "place")
    wholes = [lease for lease in state.leases.values() if not lease.part]
    yield _counts("gpupool_leases", "leases by state", [lease.state for lease in wholes], "state")
    sessions = [session.state for session in state.sessions.values() if not session.part]
    yield _counts("gpupool_sessions", "sessions by state", sessions, "state")
    noticed = [lease.notice.reason for lease in wholes if lease.holds and lease.notice is not None]
    yield _counts("gpupool_leases_noticed", "leases that will be taken back soon", noticed, "reason")
    requests = list(state.requests.values())
    yield GaugeMetricFamily("gpupool_queue_length", "requests that wait", value=len(requests))
    oldest = max((now - request.since for request in requests), default=0.0)
    yield GaugeMetricFamily(
        "gpupool_queue_oldest_seconds", "how long the oldest request has waited", value=oldest
    )


def _projects(there: Standings) -> Iterator[Metric]:
    texts = {
        "allocated": "milli-GPU that leases of the project hold",
        "protected": "milli-GPU of them that are not taken back for others",
        "waiting": "milli-GPU that requests of the project wait for",
        "deserved": "milli-GPU that the project always gets",
        "fair_share": "milli-GPU that are its fair share at this moment",
    }
    families = {
        name: GaugeMetricFamily(f"gpupool_project_{name}_milli", text, labels=["project"])
        for name, text in texts.items()
    }
    limits = GaugeMetricFamily(
        "gpupool_project_limit_milli", "milli-GPU that the project never exceeds, where there is a limit",
        labels=["project"],
    )  # fmt: skip
    for path in there.tree.paths:
        standing = there.standing(path)
        for name, family in families.items():
            family.add_metric([path], getattr(standing, name))
        limit = there.tree.limit(path)
        if limit is not None:
            limits.add_metric([path], limit)
    yield from (*families.values(), limits)


def _users(state: State, quotas: Mapping[str, Quota], now: float) -> Iterator[Metric]:
    merged = limit_rules.quotas(state, quotas)
    held: Counter[str] = Counter()
    for lease in state.leases.values():
        if lease.holds:
            held[lease.user] += lease.milli
    waiting = Counter(request.user for request in state.requests.values())
    first = sorted(held.keys() | waiting.keys(), key=lambda user: (-held[user], -waiting[user], user))
    named = set(first[:MAXIMUM_USERS])
    holds = GaugeMetricFamily(
        "gpupool_user_held_milli", "milli-GPU that leases of the user hold", labels=["user"]
    )
    waits = GaugeMetricFamily(
        "gpupool_user_waiting_requests", "requests of the user that wait", labels=["user"]
    )
    limits = GaugeMetricFamily(
        "gpupool_user_limit_milli",
        "milli-GPU that the user may hold, where there is a limit",
        labels=["user"],
    )
    window = GaugeMetricFamily(
        "gpupool_user_window_gpu_seconds",
        "GPU-seconds used in the present window, where they are limited",
        labels=["user"],
    )
    budget = GaugeMetricFamily(
        "gpupool_user_window_limit_gpu_seconds",
        "GPU-seconds that the user may use in a window",
        labels=["user"],
    )
    for user in sorted(named):
        holds.add_metric([user], held[user])
        waits.add_metric([user], waiting[user])
        quota = merged.get(user) or merged.get(accounts.EVERYBODY) or Quota()
        if quota.milli is not None:
            limits.add_metric([user], quota.milli)
        limit = limit_rules.limit_of(state, user)
        if limit.gpu_seconds is not None:
            window.add_metric([user], accounts.used_in_window(state, user, now).gpu_seconds)
            budget.add_metric([user], limit.gpu_seconds)
    others = (held.keys() | waiting.keys()) - named
    if others:
        holds.add_metric([OTHERS], sum(held[user] for user in others))
        waits.add_metric([OTHERS], sum(waiting[user] for user in others))
    yield from (holds, waits, limits, window, budget)


def _counts(name: str, text: str, values: list[str], label: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in sorted(Counter(values).items()):
        family.add_metric([value], count)
    return family
