"""What a worker says of itself on its control socket."""

from __future__ import annotations

import socket
from pathlib import Path

from benchmarks.worker_process import WorkerProcess


class WorkerState:
    """What a worker says of itself."""

    def __init__(self, line: str) -> None:
        fields = dict(item.partition("=")[::2] for item in line.split()[1:])
        self.state = fields["state"]
        self.epoch = int(fields["epoch"])
        used = sum(int(item.split(":")[1]) for item in fields["mem"].split(",") if item)
        self.used_mib = -(-used // (1 << 20))
        #: Where the memory lies.
        self.place = fields.get("place", "device")
        self.fields = fields


def worker_state(control: Path) -> WorkerState:
    """Asks over the control socket; the worker answers the agent's questions at the same time."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(control))
        connection.sendall(b"stats\n")
        text = b""
        while True:
            for line in text.split(b"\n")[:-1]:
                if line.startswith(b"stats "):
                    return WorkerState(line.decode())
            more = connection.recv(8192)
            if not more:
                raise ConnectionError("the worker closed its control socket")
            text += more


def used_bytes(worker: WorkerProcess) -> int:
    """Of the first device: mapped memory, and what loaded programs take."""
    return int(worker.stats()["mem"].split(":")[1])
