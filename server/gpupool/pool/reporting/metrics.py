"""Prometheus figures of the pool, put together when they are read."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger import audit
from gpupool.ledger.snapshot import snapshot
from gpupool.pool.access.listening import ServeError, host_and_port
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.reporting.journal_metrics import JournalCounters
from gpupool.pool.reporting.state_metrics import state_metrics

_SCRAPE_SECONDS = 5.0


class PoolCollector(Collector):
    """Reads the state on each scrape, in the pool's event loop, and the journal beside it: scrapes come from threads.

    Must be made in that loop.
    """

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = threading.Lock()
        with snapshot(pool.ledger.engine) as connection:
            self._counters = JournalCounters(audit.last_number(connection))

    def collect(self) -> Iterator[Metric]:
        async def read() -> list[Metric]:
            return list(self._of_state())

        yield from asyncio.run_coroutine_threadsafe(read(), self._loop).result(_SCRAPE_SECONDS)
        with self._one_at_a_time:
            # A ledger that cannot be read leaves the counters where they are; `gpupool_ledger_failing` tells.
            with contextlib.suppress(SQLAlchemyError), snapshot(self._pool.ledger.engine) as connection:
                self._counters.read(connection)
            found = list(self._counters.metrics())
        yield from found

    def describe(self) -> Iterator[Metric]:
        """Without this, registering would scrape, from the loop itself."""
        return iter(())

    def _of_state(self) -> Iterator[Metric]:
        pool = self._pool
        yield from state_metrics(pool.state, pool.timers, pool.machine.quotas, pool.clock.now())
        near = GaugeMetricFamily(
            "gpupool_quotas_near", "quotas that are nearly used up", labels=["subject", "of"]
        )
        for (subject, of_what), count in sorted(
            Counter((alert.subject, alert.of) for alert in pool.alerts.raised).items()
        ):
            near.add_metric([subject, of_what], count)
        yield near
        broken = float(pool.ledger_problem is not None)
        yield GaugeMetricFamily("gpupool_ledger_failing", "1: the ledger cannot be written", value=broken)
        transactions = HistogramMetricFamily(
            "gpupool_ledger_transaction_seconds",
            "transactions of the ledger, from their beginning until they are on disk",
        )
        taken = pool.ledger.transactions
        transactions.add_metric([], taken.buckets(), taken.sum)
        yield transactions


@contextlib.contextmanager
def serve_metrics(pool: PoolShell, listen: str) -> Iterator[int]:
    """Serves `/metrics` on `host:port` while the context is open; yields the port."""
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
