"""A real pool and two real node agents with small software GPUs, for tests that kill each of them again and again."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.patience import until_late
from tests.support.pool_node import PoolAndNode

#: Nodes, and how many devices each lends.
NODES: Final = {"a": 2, "b": 1}
MEMORY_MIB: Final = 512


class PoolAndTwoNodes(PoolAndNode):
    """`with PoolAndTwoNodes() as stack:`; each of its services is known by name: pool, a, b."""

    def __init__(self, *serve_arguments: str, scale: float, nodes: Mapping[str, int] = NODES) -> None:
        super().__init__(*serve_arguments, real_worker=True, gpus=sum(nodes.values()), scale=scale)
        self.nodes = dict(nodes)
        self._expected: Counter[str] = Counter()
        self._heard: Counter[str] = Counter()
        self._read = 0

    def __enter__(self) -> PoolAndTwoNodes:
        try:
            self.start_pool()
            for name in self.nodes:
                self.start_agent(name)
            self.wait(lambda: len(self.healthy()) == self.gpus, 30, "the nodes' devices")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.nodes:
            process = self.processes.get(name)
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        super().__exit__()

    def start_agent(self, name: str) -> None:
        """Returns at once; `wait_lending` waits for its hello."""
        self.expect_hello(name)
        self._start(
            name, "node", "start", "--name", name, "--driver", "software", "--software-gpus", str(self.nodes[name]),
            "--memory-mib", str(MEMORY_MIB), "--heartbeat-seconds", str(5 * self.scale),
        )  # fmt: skip

    def restart_pool(self) -> None:
        """After its death; returns at once."""
        self._start("pool", "pool", "serve", "--timers-scale", str(self.scale), *self._serve_arguments)

    def expect_hello(self, name: str) -> None:
        """`wait_lending` waits for a hello of this node that is yet to come."""
        self._expected[name] = self._hellos()[name] + 1

    def wait_lending(self, name: str, seconds: float = 30.0) -> None:
        """Until the pool has heard the node's hello, if one is expected, and hands out its devices."""
        self.wait(lambda: self._hellos()[name] >= self._expected[name], seconds, f"node {name}'s hello")
        self.wait(lambda: self._lends(name), seconds, f"node {name}'s devices")

    def wait_answering(self, seconds: float = 30.0) -> None:
        """Until somebody listens where the pool was; a gRPC channel would look only every few seconds."""

        def listens() -> bool:
            with socket.socket(socket.AF_UNIX) as connection:
                return connection.connect_ex(str(self.home / "pool.sock")) == 0

        deadline = until_late(seconds)
        while not listens():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the pool does not answer after {seconds:.0f} s\n{self.log('pool')[-2000:]}"
                )
            time.sleep(0.02)

    def worker_pid(self, node: str, session: str) -> int:
        """The worker's process, as its agent noted it."""
        return int(json.loads((self.worker_folder(node, session) / "state.json").read_text())["pid"])

    def worker_folder(self, node: str, session: str) -> Path:
        return self.home / "run" / node / "workers" / session

    def _lends(self, name: str) -> bool:
        return sum(str(device["id"]).startswith(f"{name}/") for device in self.healthy()) == self.nodes[name]

    def _hellos(self) -> Counter[str]:
        """How often the pool noted an agent's hello. It does for agents that it did not know or took for lost; one that
        merely connects again is not noted."""
        path = self.home / "pool.log"
        if path.exists():
            with path.open("rb") as log:
                log.seek(self._read)
                lines = log.read().rpartition(b"\n")[0]
            self._read += len(lines)
            self._heard.update(re.findall(r"node-hello .*\bnode=(\w+)", lines.decode(errors="replace")))
        return self._heard
