"""A real `gpupool pool serve` that is killed while it decides, again and again on one ledger, and what must be true each time.

Nodes are scripted: they remember across the pool's deaths what it told them, as agents do. Callers ask, resume, resize and
release, each remembers what it was answered; what was not answered it asks again with the same key.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from gpupool.ledger import rebuild, statements
from gpupool.ledger.ledger import Ledger
from gpupool.model.clock import Clock
from gpupool.model.state import State
from gpupool.pool.lifecycle.invariants import check_invariants
from gpupool.pool.lifecycle.replay import replay
from gpupool.proto import pool_pb2 as pb
from sqlalchemy import text

from tests.support.pool_server import Caller, ScriptedNode

ROOT = Path(__file__).resolve().parents[2]
CALLERS = 6
#: A pool that was not killed by then is killed where it is.
LONGEST = 4.0
_SIZES = (50, 100, 200, 333)


def strace_works() -> bool:
    strace = shutil.which("strace")
    if strace is None:
        return False
    done = subprocess.run(
        [strace, "-qq", "-e", "trace=none", "true"], capture_output=True, check=False, timeout=20
    )
    return done.returncode == 0


@dataclass
class Point:
    """Where the pool is killed: at the `number`-th `call` on its ledger, or `delay` seconds after the first requests."""

    call: str = ""
    number: int = 0
    delay: float = 0.0

    def __str__(self) -> str:
        return f"{self.call} {self.number}" if self.call else f"after {self.delay * 1e3:.3f} ms"


@dataclass
class Known:
    """What was said to somebody, over all lives of the pool."""

    #: key → (lease, session, epoch)
    granted: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    #: Leases whose release was asked for and not answered: either is right.
    leaving: set[str] = field(default_factory=set)
    #: Keys that were asked for and not answered.
    open_keys: set[str] = field(default_factory=set)
    #: (session, epoch) that a node was told of.
    told: set[tuple[str, int]] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)


class Node(ScriptedNode):
    """A node that also moves memory when it is told to."""

    async def _moved(self, message: Any) -> None:
        park = message.park
        await self.send(
            memory_parked=pb.MemoryParked(
                session_id=park.session_id,
                epoch=park.epoch,
                ok=True,
                place=park.place,
                request=message.request,
            )
        )

    _answers = {**ScriptedNode._answers, "park": _moved}  # noqa: RUF012


class CrashStory:
    """One ledger, many lives of the pool on it."""

    def __init__(self, home: Path, seed: int, ledger: str | None = None) -> None:
        self.home = home
        self.random = random.Random(seed)
        self.url = ledger
        self.where: Path | str = ledger or home / "pool.sqlite"
        self.known = Known()
        self.workers: dict[str, dict[str, int]] = {"node1": {}, "node2": {}}
        self._asked = 0

    # ---- one life

    async def live_and_die(self, point: Point) -> None:
        pool = self._start(point)
        try:
            await self._life(pool, point)
        finally:
            self._kill(pool)
        self.check()

    def _start(self, point: Point) -> subprocess.Popen[bytes]:
        serve = [sys.executable, "-m", "gpupool.cli.main", "pool", "serve"]
        if self.url:
            serve += ["--ledger", self.url]
        if point.call:
            paths = [part for name in ("", "-wal") for part in ("-P", f"{self.where}{name}")]
            serve = ["strace", "-f", "-qq", "-o", "/dev/null", *paths, "-e", f"trace={point.call}",
                     "-e", f"inject={point.call}:signal=KILL:when={point.number}", *serve]  # fmt: skip
        with (self.home / "log").open("ab") as log:
            return subprocess.Popen(
                serve, stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "server"), "GPUPOOL_HOME": str(self.home)},
            )  # fmt: skip

    def _kill(self, pool: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pool.pid, signal.SIGKILL)
        pool.wait(timeout=20)

    async def _life(self, pool: subprocess.Popen[bytes], point: Point) -> None:
        socket = self.home / "pool.sock"
        before = _made_at(socket)
        end = time.monotonic() + 60
        while _made_at(socket) in (None, before):
            if pool.poll() is not None:
                return  # killed before it served
            assert time.monotonic() < end, (self.home / "log").read_text()[-2000:]
            await asyncio.sleep(0.01)
        async with Caller(f"unix:{socket}") as caller:
            nodes = []
            with contextlib.suppress(grpc.aio.AioRpcError, ConnectionError, TimeoutError):
                for name, workers in self.workers.items():
                    node = Node(caller, name)
                    node.workers = workers
                    nodes.append(node)
                    await node.connect(instance="run-1")
            tasks = [asyncio.create_task(self._caller(caller, number)) for number in range(CALLERS)]
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout(point.delay or LONGEST):
                    while pool.poll() is None:
                        await asyncio.sleep(0.0005)
            self._kill(pool)
            # Only now does anybody stop listening: what the pool said, it said.
            await asyncio.gather(*tasks, return_exceptions=False)
            for node in nodes:
                self._listen(node)
                with contextlib.suppress(grpc.aio.AioRpcError, ConnectionError):
                    await node.disconnect()

    def _listen(self, node: ScriptedNode) -> None:
        for message in node.received:
            for kind in ("start", "lease"):
                if message.HasField(kind):
                    order = getattr(message, kind)
                    self.known.told.add((order.session_id, order.epoch))

    async def _caller(self, caller: Caller, number: int) -> None:
        mine = f"c{number}-"
        with contextlib.suppress(grpc.aio.AioRpcError):
            for key in sorted(key for key in self.known.open_keys if key.startswith(mine)):
                await self._ask(caller, key, "")
            while True:
                await self._one_thing(caller, mine)

    async def _one_thing(self, caller: Caller, mine: str) -> None:
        held = [
            (key, *rest)
            for key, rest in self.known.granted.items()
            if key.startswith(mine) and rest[0] not in self.known.released
        ]
        if len(held) > 2 or (held and self.random.random() < 0.4):
            _, lease, session, _ = self.random.choice(held)
            if self.random.random() < 0.3:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await caller.call(
                        "Resize", pb.ResizeLease(lease_id=lease, milli=self.random.choice(_SIZES))
                    )
            close = self.random.random() < 0.3
            self.known.leaving.add(lease)
            await caller.call("Release", pb.ReleaseLease(lease_id=lease, close_session=close))
            self.known.released.add(lease)
            self.known.counts["released"] += 1
            if not close and self.random.random() < 0.7:
                await self._ask(caller, self._new_key(mine), session)
            return
        await self._ask(caller, self._new_key(mine), "")

    def _new_key(self, mine: str) -> str:
        self._asked += 1
        return f"{mine}{self._asked}-{secrets.token_hex(4)}"

    async def _ask(self, caller: Caller, key: str, session: str) -> None:
        self.known.open_keys.add(key)
        event = await caller.ask(key, self.random.choice(_SIZES), session_id=session, wait_seconds=0.5)
        self.known.open_keys.discard(key)
        if event.WhichOneof("event") == "granted":
            grant = event.granted
            self.known.granted[key] = (grant.lease_id, grant.session_id, grant.epoch)
            self.known.counts["granted"] += 1
        else:
            self.known.counts[event.refused.reason] += 1

    # ---- what must be true of the ledger, whenever the pool died

    def check(self) -> None:
        if not self.url and not Path(self.where).exists():
            assert not self.known.granted
            return
        with Ledger(self.where, Clock.start()) as ledger:
            if not self.url:
                with ledger.engine.connect() as connection:
                    assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
            state = ledger.load()
            check_invariants(state)
            self._check_what_was_said(state)
            self._check_journal_of_steps(ledger, state)

    def _check_what_was_said(self, state: State) -> None:
        epochs: dict[tuple[str, int], str] = {}
        for key, (lease_id, session, epoch) in self.known.granted.items():
            assert epochs.setdefault((session, epoch), lease_id) == lease_id, "an epoch was granted twice"
            lease = state.leases[lease_id]
            assert (lease.key, lease.session_id, lease.epoch) == (key, session, epoch)
            if lease_id in self.known.released:
                assert not lease.live, f"the release of {lease_id} was acknowledged"
            elif lease_id not in self.known.leaving:
                assert lease.live or lease.reason == "lost", f"{lease_id} was granted and is {lease.state}"
        stored = {(lease.session_id, lease.epoch) for lease in state.leases.values()}
        assert self.known.told <= stored, "a node was told of a lease that is not stored"

    def _check_journal_of_steps(self, ledger: Ledger, state: State) -> None:
        """The steps lead to just what the tables hold, and the last decision comes out the same."""
        if ledger.last_step == 0:
            return
        with ledger.engine.connect() as connection:
            moment = rebuild.moment(connection, ledger.last_step)
            for binding in statements.BINDINGS:
                rebuilt = {
                    key: _comparable(binding.to_row(row, moment.clock))
                    for key, row in getattr(moment.state, binding.name).items()
                }
                loaded = {
                    key: _comparable(binding.to_row(row, ledger._clock))
                    for key, row in getattr(state, binding.name).items()
                }
                assert rebuilt == loaded, binding.name
            again = replay(connection, ledger.last_step)
            assert again.same_outcome, f"{again.event}: {again.recorded} {again.lines}"


def _made_at(file: Path) -> int | None:
    """When a file was made, in ns; None: it isn't there. A server that starts takes the old one away first."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    """Without the secret that steps do not keep; wall-clock times to the millisecond: they went there and back."""
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in row.items()
        if name != "secret"
    }
