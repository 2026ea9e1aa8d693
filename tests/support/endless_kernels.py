"""Kernels that never end, in the session world: no lease, no computing; what computes is charged."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final

from tests.support.device_session import DeviceSession
from tests.support.session_sight import Inconsistent
from tests.support.session_world import SessionWorld

#: How a lease ends under an endless kernel: given back or taken away; those that end the session.
ENDS: Final = ("release", "idle", "exit", "admin", "interrupt", "reset", "closed", "killed", "gone")
#: A process that computes nothing wakes up now and then, seconds of processor time.
_AT_REST: Final = 0.05
_LOOK_SECONDS: Final = 0.25
_MOST_INTERRUPTS: Final = 80
#: What has run for less is charged when it has ended, or is older.
_COUNTED_AFTER_MS: Final = 50
#: How far what is charged may be from what the device did.
_CLOSE: Final = 0.02


def end_under_endless_kernel(world: SessionWorld, session: DeviceSession, how: str) -> None:
    """Launches a kernel that never ends, ends the lease in this way, and sees that nothing computes then.

    A session that stays goes on where it was when it has a lease again, and its kernel ends in order.
    """
    world.settle()
    if not session.attached:
        return
    run_endless(world, session)
    match how:
        case "interrupt" | "reset" | "closed" | "killed":
            return _end_session(world, session, how)
        case "gone":
            return _end_holder(world, session)
        case "admin":
            world.reclaim(session, told=True)
        case _:
            world.detach(session, how, drained=False)
    check_stopped(world, session)
    go_on(world, session)


def run_endless(world: SessionWorld, session: DeviceSession) -> None:
    """It runs, and what it takes is charged."""
    session.launch_endless()
    world.wait(lambda: _has_run_for(world, session) >= _COUNTED_AFTER_MS, "the kernel")
    _check_charged(world, session)


def check_stopped(world: SessionWorld, session: DeviceSession, state: str = "parked") -> None:
    """The share is free: nothing of the session computes, and the pool has been told of all that did."""
    stats = world.worker_stats(session)
    if (stats.fields["work"], stats.state) != ("stopped", state):
        raise Inconsistent(f"{session.name} has no lease, and its worker says {stats.fields}")
    _check_at_rest(world, session)


def go_on(world: SessionWorld, session: DeviceSession, **terms: Any) -> None:
    """The session has a lease again; its kernel ends in order."""
    check_told(world, session, _device_seconds(world, session))
    if not world.resume(session, session.milli, **terms):
        raise Inconsistent(f"{session.name} gave {session.milli} back and finds no room")


def check_told(world: SessionWorld, session: DeviceSession, at_least: float) -> None:
    """The pool charges what the device did, also for a session that is over."""

    def told() -> bool:
        return world.portal(world.portal.pool.usage(session.id)).device_seconds >= at_least * (1 - _CLOSE)

    world.wait(told, f"{at_least:.3f} s of {session.name} to be charged")


def _has_run_for(world: SessionWorld, session: DeviceSession) -> int:
    fields = world.worker_stats(session).fields
    return int(fields["work_ms"]) if fields.get("kernel") == "endless" else 0


def _device_seconds(world: SessionWorld, session: DeviceSession) -> float:
    return int(world.worker_stats(session).fields["device_ns"]) / 1e9


def _check_charged(world: SessionWorld, session: DeviceSession) -> None:
    """While the kernel runs device time passes as fast as time does, if no other session is at work."""
    others = [one for one in world.attached if one.device == session.device and one is not session]
    before = [world.worker_stats(one).fields for one in others]
    began = time.monotonic()
    first = _device_seconds(world, session)
    inner = time.monotonic()
    time.sleep(_LOOK_SECONDS)
    inner = time.monotonic() - inner
    charged = _device_seconds(world, session) - first
    outer = time.monotonic() - began
    after = [world.worker_stats(one).fields for one in others]
    alone = all(one["device_ns"] == two["device_ns"] for one, two in zip(before, after, strict=True))
    if charged > outer * (1 + _CLOSE) or (alone and charged < inner * (1 - _CLOSE)):
        figures = [world.worker_stats(session).fields, *after]
        raise Inconsistent(
            f"{session.name} was charged {charged:.3f} s in {inner:.3f} to {outer:.3f} s; {figures}"
        )


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _check_at_rest(world: SessionWorld, session: DeviceSession) -> None:
    pid = world.stack.worker_pid(session.node, session.id)
    charged, used = _device_seconds(world, session), _processor_seconds(pid)
    time.sleep(_LOOK_SECONDS)
    used = _processor_seconds(pid) - used
    if used > _AT_REST or _device_seconds(world, session) != charged:
        raise Inconsistent(f"the worker of {session.name} computes without a lease: {used:.2f} s")


def _end_session(world: SessionWorld, session: DeviceSession, how: str) -> None:
    """The user ends it, or its kernel does, in order or not."""
    before = _device_seconds(world, session)
    world.portal.drop(session.grant.lease_id)
    if how == "interrupt":
        _interrupt_twice(session)
    else:
        if how == "killed":
            session.program.kill()
        session.file.write("closed", session=session.id, message=how, log=str(session.log))
        reason = "reset" if how == "reset" else "exit"
        world.portal(world.portal.pool.close_session(session.id, reason))
    _gone(world, session, before)


def _end_holder(world: SessionWorld, session: DeviceSession) -> None:
    """The program is killed, and so is who renews its lease: the pool finds out."""
    session.program.kill()
    world.portal.drop(session.grant.lease_id)
    world.wait_ended(session)
    check_stopped(world, session)
    before = _device_seconds(world, session)
    world.portal(world.portal.pool.close_session(session.id, "exit"))
    _gone(world, session, before)


def _interrupt_twice(session: DeviceSession) -> None:
    """The program waits behind its kernel; the second interrupt ends the session, and the program lives."""
    session.program.send(["sync"])
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(session.program.receive, "sync")
        for _ in range(_MOST_INTERRUPTS):  # one that comes before the call waits is the program's own
            if answer.done():
                break
            os.kill(session.program.pid, signal.SIGINT)
            wait([answer], _LOOK_SECONDS)
        if answer.result().error == 0:
            raise Inconsistent(f"{session.name} was interrupted twice, and its call succeeded")


def _gone(world: SessionWorld, session: DeviceSession, charged: float) -> None:
    """Its worker is; and so nothing computes."""
    world.wait_ended(session)
    folder = world.stack.worker_folder(session.node, session.id)
    world.wait(lambda: not (folder / "control.sock").exists(), f"the end of {session.name}'s worker")
    check_told(world, session, charged)
    world.sessions.remove(session)
    session.end()
