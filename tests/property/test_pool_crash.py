"""The pool is killed at every single write to its disk, one after the other. Whatever it had told a caller before is
true afterwards, and nothing is granted twice."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpupool.model import events
from gpupool.pool.lifecycle.invariants import check_invariants

from tests.support.pool_world import PoolWorld

ROOT = Path(__file__).resolve().parents[2]


def strace_works() -> bool:
    strace = shutil.which("strace")
    if strace is None:
        return False
    done = subprocess.run(
        [strace, "-qq", "-e", "trace=none", "true"], capture_output=True, check=False, timeout=20
    )
    return done.returncode == 0


class Lives:
    """Runs the story of `pool_crash_run` again and again, each time in a fresh process under strace."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.pool_crash_run"],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "server")},
            )  # fmt: skip

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def killed_at(self, call: str, number: int, folder: Path) -> bool:
        """Runs the story, killed at the `number`-th `call`; returns whether it was (else it came to its end)."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{folder / 'pool.sqlite'}\t{folder / 'acknowledged'}\n")
        self._process.stdin.flush()
        pid = int(self._line())
        tracing = subprocess.Popen(
            [
                "strace", "-f", "-o", "/dev/null", "-P", str(folder / "pool.sqlite"), "-P",
                str(folder / "pool.sqlite-wal"), "-e", f"trace={call}",
                "-e", f"inject={call}:signal=KILL:when={number}", "-p", str(pid),
            ],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert tracing.stderr is not None
        attached = tracing.stderr.readline()
        os.kill(pid, signal.SIGCONT)
        status = os.waitstatus_to_exitcode(int(self._line()))
        said = attached + tracing.stderr.read()
        tracing.wait(10)
        assert "attached" in attached, said
        assert status in (0, -signal.SIGKILL), self._errors.read_text()[-2000:]
        return status != 0

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._errors.read_text()[-2000:]
        return line


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
    # Nothing is held for ever by what the crash left half done. Those that waited do so still, until they call it off.
    for request in list(state.requests.values()):
        world.handle(events.Cancelled(world.now, request.user, request.key))
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
    with Lives(tmp_path / "errors") as lives:
        for number in itertools.count(1, stride):
            folder = tmp_path / f"{call}{number}"
            folder.mkdir()
            killed = lives.killed_at(call, number, folder)
            check_after_crash(folder)
            if not killed:
                break
    assert number > 3 * stride, "the story reached the disk"
