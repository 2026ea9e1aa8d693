"""A short life of a pool, run as a process of its own so that it can be killed at any write.

Usage: python -m tests.support.pool_crash_run LEDGER ACKNOWLEDGED

Each line of ACKNOWLEDGED was written after the pool had said so to a caller: `granted KEY LEASE` or
`released LEASE`. What is said there must be true of the ledger, whenever the process is killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.pool_world import PoolWorld


def main(ledger: Path, acknowledged: Path) -> None:
    said = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    world = PoolWorld(ledger, nodes={"node1": 2}, total_mib=4096)

    def attach(key: str, milli: int, **more: object) -> str:
        lease = world.attach(key, milli, **more)
        os.write(said, f"granted {key} {lease}\n".encode())
        return lease

    def release(lease: str, *, close: bool = False) -> None:
        world.release(lease, close=close)
        os.write(said, f"released {lease}\n".encode())
        world.settle()

    world.connect()
    first = attach("k1", 700)
    second = attach("k2", 700, user="bob")
    world.request("k3", 600, user="eve", wait=None)
    release(first)
    attach("k4", 300, session_id=world.machine.state.leases[first].session_id, wait=0.0)
    release(second, close=True)
    world.connect()
    world.advance(40)
    os.write(said, b"done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
