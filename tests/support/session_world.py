"""Sessions over a real pool, real nodes and real workers: what can be done to them, each checked against the model."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gpupool.client.errors import PoolRefusedError
from gpupool.client.session_file import SessionFile
from gpupool.client.types import Lease, LeaseRequest
from gpupool.shares import Share

from tests.support.cut_wire import CutWire
from tests.support.device_session import DeviceSession, Refused, Step
from tests.support.pool_portal import PoolPortal
from tests.support.session_program import SessionProgram
from tests.support.session_sight import Inconsistent, SessionSight, mib_of
from tests.support.two_nodes import PoolAndTwoNodes

#: Others' memory has left a device after this time, on a busy machine.
EVICTION_SECONDS: Final = 30.0


class SessionWorld(SessionSight):
    """Everything that happens to sessions goes through here; the model's expectations are checked on the way."""

    def __init__(self, stack: PoolAndTwoNodes, portal: PoolPortal, program: Path, folder: Path) -> None:
        super().__init__(stack, portal)
        #: Sessions that went on otherwise than where they were, by the way.
        self.came_back: Counter[str] = Counter()
        self._program = program
        self._folder = folder
        self._names = itertools.count(1)

    # ---- attach, detach, idle, reclaim, resize

    def attach(
        self, milli: int, *, wire: CutWire | None = None, movable: bool = False, **terms: Any
    ) -> DeviceSession | None:
        """A new session of a new program, over `wire` if there is one; None when there is no room, as the model says.

        `terms`: more of the request.
        """
        self.settle()
        name = f"s{next(self._names)}"
        request = LeaseRequest(Share(milli=milli), label=name, **terms)
        room = any(self._has_room(device, milli) for device in self.free_milli())
        try:
            grant = self.portal(
                self.portal.pool.request(request, wait_seconds=EVICTION_SECONDS if room else 0)
            )
        except PoolRefusedError as refusal:
            if room or refusal.reason != "full":
                raise Inconsistent(
                    f"{milli} milli-GPU are free, and the pool refuses: {refusal}"
                ) from refusal
            return None
        if not room:
            raise Inconsistent(f"{milli} milli-GPU are not free, and the pool grants {grant}")
        again = self.portal(self.portal.pool.request(request, wait_seconds=0))
        if again != grant:
            raise Inconsistent(f"one key led to two leases: {grant} and {again}")
        folder = self._folder / name
        folder.mkdir()
        file = SessionFile(folder / "session")
        session = DeviceSession(
            name,
            SessionProgram(self._program, file.path),
            file,
            folder / "log",
            grant,
            milli,
            wire=wire,
            movable=movable,
        )
        self._granted(session)
        self.sessions.append(session)
        session.start()
        session.allocate(256, 99)
        return session

    def resume(self, session: DeviceSession, milli: int, **terms: Any) -> bool:
        """Asks for a share for a parked session; False when there is no room, as the model says."""
        assert not session.attached
        self.settle()
        request = LeaseRequest(Share(milli=milli), session_id=session.id, **terms)
        room = self._room_to_resume(session, milli)
        before = session.device, self.worker_stats(session).place
        began = time.monotonic()
        try:
            grant = self.portal(
                self.portal.pool.request(request, wait_seconds=EVICTION_SECONDS if room else 0)
            )
        except PoolRefusedError as refusal:
            if room or refusal.reason not in ("full", "bad-share"):
                raise Inconsistent(f"{session.name} cannot resume with {milli}: {refusal}") from refusal
            return False
        if not room:
            raise Inconsistent(
                f"{milli} milli-GPU are not free for {session.name}, and the pool grants {grant}"
            )
        if grant.session_id != session.id or grant.new_session or grant.epoch <= max(session.epochs):
            raise Inconsistent(f"{session.name} asked to be resumed, and got {grant}")
        session.grant, session.milli = grant, milli
        self._granted(session)
        if time.monotonic() - began > 3:
            self.note(
                f"resumed {session.name} from {before} on {session.device} after {time.monotonic() - began:.1f} s"
            )
        if before[1] == "host":
            self.came_back["from the host"] += 1
        if before[0] != session.device:
            same = before[0].partition("/")[0] == session.node
            self.came_back["on another device" if same else "in another node"] += 1
        session.resumed()
        return True

    def _has_room(self, device: str, milli: int) -> bool:
        """Whether a share fits: others' parked memory goes away."""
        return self.free_milli()[device] >= milli

    def _room_to_resume(self, session: DeviceSession, milli: int) -> bool:
        state = self.worker_stats(session)
        if mib_of(milli) < state.used_mib:
            return False
        devices = set(self.free_milli())
        if state.fields["move"] != "ok":
            devices = {device for device in devices if device.startswith(f"{session.node}/")}
        return any(self._has_room(device, milli) for device in devices)

    def _granted(self, session: DeviceSession) -> None:
        session.attached, session.unaware, session.why = True, False, ""
        session.epochs[session.grant.epoch] = session.milli
        session.write_attached()
        self.portal.hold(session.grant.lease_id)

    def detach(self, session: DeviceSession, reason: str, *, drained: bool) -> None:
        """The holder gives the share back, as the end of a cell, the button and the idle watch do."""
        self.settle()
        if not session.attached:
            return
        if drained:
            answer = session.program.run("drain 20000")
            if answer.error:
                raise Refused("drain", answer)
            session.memory.confirm()
        self.portal.drop(session.grant.lease_id)
        session.write_parked(f"given back ({reason})")
        self.portal(self.portal.pool.release(session.grant.lease_id, reason))
        self._parked(session)

    def reclaim(self, session: DeviceSession, *, told: bool) -> None:
        """Somebody else takes the share away; `told`: before its program's next call."""
        self.settle()
        if not session.attached:
            return
        self.portal(self.portal.pool.release(session.grant.lease_id, "admin"))
        self._parked(session)
        if told:
            self._tell(session)

    def taken(self, session: DeviceSession) -> None:
        """The pool has ended its lease by itself; its holder hears of it."""
        self.settle()
        self.wait_ended(session)
        if session.attached:
            session.interrupted()
        self.portal.drop(session.grant.lease_id)
        self.portal.ends().pop(session.grant.lease_id, None)
        session.write_parked("taken back")

    def _parked(self, session: DeviceSession) -> None:
        self.wait_ended(session)
        session.interrupted()

    def _tell(self, session: DeviceSession) -> None:
        """The holder learns by a renewal, and writes the session file."""
        self.portal(self.portal.holder.renew_now())
        self.portal.drop(session.grant.lease_id)
        self.portal.ends().pop(session.grant.lease_id, None)
        session.write_parked("taken back")

    def resize(self, session: DeviceSession, milli: int) -> bool:
        """False when it is refused, as the model says."""
        self.settle()
        if not session.attached:
            return False
        session.check([])
        room = self.free_milli()[session.device] + session.milli >= milli
        refused: PoolRefusedError | None = None
        try:
            grant = self.portal(self.portal.pool.resize(session.grant.lease_id, Share(milli=milli)))
        except PoolRefusedError as refusal:
            refused = refusal
        # Now, because what the program only keeps for later has been given back before it was decided.
        used = self.worker_stats(session).used_mib
        holds = mib_of(milli) >= used
        if refused is not None:
            if room and holds:
                raise Inconsistent(
                    f"{session.name} with {used} MiB cannot become {milli}: {refused}"
                ) from refused
            return False
        if not room or not holds:
            raise Inconsistent(f"{session.name} with {used} MiB became {milli} without room")
        session.grant, session.milli = grant, milli
        session.epochs[grant.epoch] = milli
        return True

    def close(self, session: DeviceSession, *, killed: bool) -> None:
        """Its kernel ends, or is killed; the Jupyter side closes the session either way."""
        self.settle()
        self.sessions.remove(session)
        self.portal.drop(session.grant.lease_id)
        if killed:
            session.end(killed=True)
        # Else its program would look for the worker until its own end.
        session.file.write("closed", session=session.id, message="the kernel ended", log=str(session.log))
        self.portal(self.portal.pool.close_session(session.id, "exit"))
        session.end()
        self.wait_ended(session)

    def close_all(self) -> None:
        """The end of a story."""
        self.settle()
        sessions, self.sessions = self.sessions, []

        async def close() -> None:
            await asyncio.gather(
                *(self.portal.pool.close_session(session.id, "exit") for session in sessions)
            )

        for session in sessions:
            self.portal.drop(session.grant.lease_id)
            session.end(killed=True)
        self.portal(close())
        self.wait(lambda: not self.live_leases(), "the end of all leases")

    # ---- deaths

    def kill_worker(self, session: DeviceSession, *, told: bool) -> None:
        """The one death that costs a session; it costs only that one. `told`: its holder has written the session file,
        so that its program need not find out by itself."""
        self.settle()
        os.kill(self.stack.worker_pid(session.node, session.id), signal.SIGKILL)
        self.wait_ended(session)
        if told:
            session.file.write("closed", session=session.id, message="its worker ended", log=str(session.log))
        answer = session.program.run("sync")
        if answer.error != 46 or not answer.text:
            raise Inconsistent(f"the worker of {session.name} is dead, and a call gave {answer}")
        self.sessions.remove(session)
        self.portal.drop(session.grant.lease_id)
        session.end()

    def kill_agent(self, node: str) -> None:
        """It comes back at once; what needs it waits in `settle`."""
        self.settle()
        self.stack.kill(node)
        self._disturb(node)
        self.stack.start_agent(node)

    def kill_pool(self) -> None:
        """It comes back at once; what needs it waits in `settle`."""
        self.stop_pool()
        self.stack.restart_pool()

    def stop_pool(self) -> None:
        """Until somebody restarts it."""
        self.settle()
        self.stack.kill("pool")
        for node in self.stack.nodes:
            self._disturb(node)
        self._pool_killed = True

    def cut_off_agent(self, node: str, meanwhile: Callable[[], None]) -> None:
        """Stands still until the pool has given up its node: its workers fence themselves before."""
        self.settle()
        process = self.stack.processes[node]
        there = [session for session in self.attached if session.node == node]
        began = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        try:
            self._disturb(node)
            meanwhile()
            self.stack.expect_hello(node)
            self.wait(
                lambda: not any(lease for lease in self.live_leases() if self._is_on(lease, node)),
                "the fence",
            )
            if time.monotonic() - began < self._fence - self._heartbeat:
                raise Inconsistent(f"node {node} was given up after {time.monotonic() - began:.2f} s")
            for session in there:
                if (state := self.worker_stats(session).state) != "fenced":
                    raise Inconsistent(
                        f"the pool gave the share of {session.name} up, whose worker is {state}"
                    )
                self._fenced(session)
                session.try_in_vain([Step("fill"), Step("step", 1)])
        finally:
            process.send_signal(signal.SIGCONT)
        self.settle()

    @staticmethod
    def _is_on(lease: Lease, node: str) -> bool:
        return any(share.device_id.startswith(f"{node}/") for share in lease.shares)

    def freeze_worker(self, session: DeviceSession, seconds: float) -> None:
        """Stands still, shorter than anybody's patience: only slower."""
        self.settle()
        pid = self.stack.worker_pid(session.node, session.id)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
