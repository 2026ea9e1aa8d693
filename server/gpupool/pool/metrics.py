"""Prometheus figures of the pool, computed from its state when they are read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpupool.pool.shell import PoolShell
from gpupool.pool.view import health, host_rooms, pool_view

_SCRAPE_SECONDS = 5.0


class PoolCollector(Collector):
    """Reads the state on each scrape, in the pool's event loop: scrapes come from another thread.

    Must be made in that loop.
    """

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterator[Metric]:
        async def read() -> list[Metric]:
            return list(self._read())

        yield from asyncio.run_coroutine_threadsafe(read(), self._loop).result(_SCRAPE_SECONDS)

    def describe(self) -> Iterator[Metric]:
        """Without this, registering would scrape, from the loop itself."""
        return iter(())

    def _read(self) -> Iterator[Metric]:
        pool, now = self._pool, self._pool.clock.now()
        view = {d.id: d for d in pool_view(pool.state, pool.timers, {}, now).devices}
        labels = ["device", "node"]
        free = GaugeMetricFamily("gpupool_device_free_milli", "milli-GPU not taken", labels=labels)
        free_mib = GaugeMetricFamily("gpupool_device_free_mib", "MiB not taken", labels=labels)
        healthy = GaugeMetricFamily("gpupool_device_healthy", "1: takes new shares", labels=labels)
        for device in pool.state.devices.values():
            if device.id not in view:
                continue
            row = [device.id, device.node]
            free.add_metric(row, max(0, view[device.id].free_milli))
            free_mib.add_metric(row, max(0, view[device.id].free_mib))
            healthy.add_metric(row, float(health(pool.state, device, pool.timers, now)[0]))
        yield from (free, free_mib, healthy)
        room = GaugeMetricFamily(
            "gpupool_node_park_memory_free_mib", "host memory left for parked sessions", labels=["node"]
        )
        for name, mib in host_rooms(pool.state).items():
            room.add_metric([name], mib)
        yield room
        places = [session.place for session in pool.state.sessions.values() if session.state == "parked"]
        yield self._counts("gpupool_parked_sessions", "parked sessions by place of memory", places, "place")
        leases = [lease.state for lease in pool.state.leases.values() if not lease.part]
        yield self._counts("gpupool_leases", "leases by state", leases)
        sessions = [session.state for session in pool.state.sessions.values() if not session.part]
        yield self._counts("gpupool_sessions", "sessions by state", sessions)
        yield GaugeMetricFamily("gpupool_queue_length", "asks that wait", value=len(pool.state.asks))
        broken = float(pool.ledger_problem is not None)
        yield GaugeMetricFamily("gpupool_ledger_failing", "1: the ledger cannot be written", value=broken)

    @staticmethod
    def _counts(name: str, text: str, states: list[str], label: str = "state") -> Metric:
        family = GaugeMetricFamily(name, text, labels=[label])
        for state in sorted(set(states)):
            family.add_metric([state], states.count(state))
        return family


@contextlib.contextmanager
def serve_metrics(pool: PoolShell, listen: str) -> Iterator[int]:
    """Serves `/metrics` on `host:port` while the context is open; yields the port."""
    from gpupool.pool.server import ServeError, host_and_port

    host, port = host_and_port(listen)
    registry = CollectorRegistry()
    registry.register(PoolCollector(pool))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ServeError(f"{listen} cannot be bound for metrics: {error.strerror}") from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
