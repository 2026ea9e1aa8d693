"""The wire between a program and its worker, in the hands of a test: it can be cut, and stand still."""

from __future__ import annotations

import contextlib
import random
import time

from gpupool.client.worker_address import WorkerAddress

from benchmarks.network import NetworkProxy


class CutWire:
    """TCP through a proxy that follows the session to wherever its worker is."""

    def __init__(self) -> None:
        self._target = ""
        self._proxy: NetworkProxy | None = None
        self._open = contextlib.ExitStack()

    def address(self, worker: str) -> str:
        """What the session file is to say instead of the worker's address."""
        there = WorkerAddress.parse(worker)
        target = f"{there.host}:{there.port}"
        if target != self._target or self._proxy is None:
            self.close()
            self._proxy = self._open.enter_context(NetworkProxy(target))
            self._target = target
        return str(WorkerAddress("127.0.0.1", self._proxy.port, tls=there.tls))

    def disturb(self, seed: int, times: int) -> None:
        """Cuts it at odd moments; now and then nothing passes for a while before."""
        assert self._proxy is not None
        choice = random.Random(seed)
        for _ in range(times):
            time.sleep(choice.uniform(0, 0.004))
            if choice.random() < 0.2:
                self._proxy.stall()
                time.sleep(choice.uniform(0, 0.02))
                self._proxy.cut()
                self._proxy.resume()
            else:
                self._proxy.cut()

    def close(self) -> None:
        self._open.close()
        self._proxy = None
