"""The pool is killed at every single write to its disk, one after the other. Whatever it had told a caller before is
true afterwards, and nothing is granted twice."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpupool.pool.invariants import check_invariants

from tests.support.pool_world import PoolWorld

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = [sys.executable, "-m", "tests.support.pool_crash_run"]


def strace_works() -> bool:
    strace = shutil.which("strace")
    if strace is None:
        return False
    done = subprocess.run(
        [strace, "-qq", "-e", "trace=none", "true"], capture_output=True, check=False, timeout=20
    )
    return done.returncode == 0


def run_killed_at(call: str, number: int, folder: Path) -> bool:
    """Runs the story, killed at the `number`-th `call`; returns whether it was (else it came to its end)."""
    done = subprocess.run(
        [
            "strace", "-f", "-qq", "-o", "/dev/null", "-P", str(folder / "pool.sqlite"), "-P",
            str(folder / "pool.sqlite-wal"), "-e", f"trace={call}",
            "-e", f"inject={call}:signal=KILL:when={number}",
            *SCRIPT, str(folder / "pool.sqlite"), str(folder / "acknowledged"),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "server")},
    )  # fmt: skip
    killed = done.returncode in (-9, 137)
    assert killed or done.returncode == 0, done.stderr[-2000:]
    return killed


def check_after_crash(folder: Path) -> None:
    acknowledged = folder / "acknowledged"
    lines = acknowledged.read_text().splitlines() if acknowledged.exists() else []
    world = PoolWorld(folder / "pool.sqlite", nodes={"node1": 2}, total_mib=4096)
    state = world.machine.state
    check_invariants(state)
    granted: dict[str, str] = {}
    for line in lines:
        match line.split():
            case ["granted", key, lease_id]:
                granted[key] = lease_id
                assert state.leases[lease_id].key == key, "a grant that was told is in the ledger"
            case ["released", lease_id]:
                assert not state.leases[lease_id].live, "a release that was told is in the ledger"
    world.connect()
    for key, lease_id in granted.items():
        if state.leases[lease_id].live:
            world.request(key, 700, user=state.leases[lease_id].user)
    same_key = [lease.key for lease in state.leases.values()]
    assert len(same_key) == len(set(same_key))
    # Nothing is held for ever by what the crash left half done.
    for lease in list(state.leases.values()):
        world.release(lease.id)
    world.live(35)
    assert (world.free("node1/0"), world.free("node1/1")) == (1000, 1000)
    assert world.ledger is not None
    world.ledger.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not strace_works(), reason="strace is missing or may not trace here")
@pytest.mark.parametrize(("call", "stride"), [("fdatasync", 1), ("pwrite64", 15)])
def test_killed_at_every_write(call: str, stride: int, tmp_path: Path) -> None:
    for number in itertools.count(1, stride):
        folder = tmp_path / f"{call}{number}"
        folder.mkdir()
        killed = run_killed_at(call, number, folder)
        check_after_crash(folder)
        if not killed:
            break
    assert number > 3 * stride, "the story reached the disk"
