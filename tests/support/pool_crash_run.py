"""Short lives of a pool, each in a process of its own so that it can be killed at any write.

For each line `LEDGER<tab>ACKNOWLEDGED` on standard input there is such a process, forked from this one, which has
everything loaded already. It is stopped when its number is printed, and begins when it is continued (by whom traces
it, say); when it has ended its wait status is printed.

Each line of ACKNOWLEDGED was written after the pool had said so to a caller: `granted KEY LEASE` or
`released LEASE`. What is said there must be true of the ledger, whenever the process is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from pathlib import Path

from tests.support.pool_world import PoolWorld


def live(ledger: Path, acknowledged: Path) -> None:
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
    assert world.ledger is not None
    world.ledger.close()  # which writes too


_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


def begin_when_continued(ledger: Path, acknowledged: Path) -> None:
    """In the forked process: lives, and ends it. Does not return."""
    # Where only ancestors may trace.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    code = 1
    try:
        live(ledger, acknowledged)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    for line in sys.stdin:
        ledger, acknowledged = line.rstrip("\n").split("\t")
        child = os.fork()
        if child == 0:
            begin_when_continued(Path(ledger), Path(acknowledged))
        os.waitpid(child, os.WUNTRACED)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
