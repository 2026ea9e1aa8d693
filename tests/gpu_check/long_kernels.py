"""A kernel that runs long: lists show it, its share is free soon after its lease, and an interrupt ends the wait for it.

NVIDIA's driver can't stop a kernel, so there all this ends the session; the software GPU parks it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.gpu_check.comparisons import Bench
from tests.gpu_check.programs_run import Found, end_group, run
from tests.gpu_check.time_left import LeftOut
from tests.gpu_check.ways import GPUPOOL

PROGRAM: Final = Path(__file__).with_name("endless.py")
#: The kernel ends by itself some time, whatever else goes wrong.
_KERNEL_SECONDS: Final = 100.0
#: After which a kernel is named, and some more for the heartbeat.
_NAMED_SECONDS: Final = 2.5
_PATIENCE: Final = 40.0


class NotSeenError(Exception):
    """What should have been seen in time was not."""


@dataclass(frozen=True, slots=True)
class Endless:
    """A program on a share that waits for its kernel.

    Attributes:
        process: the command that holds the share; it leads a process group.
        said: what it prints, with errors.
        environment: of commands about the pool.
    """

    process: subprocess.Popen[bytes]
    said: Path
    environment: Mapping[str, str]

    def text(self) -> str:
        return self.said.read_text(errors="replace")

    def listed(self, *command: str) -> Any:
        """What a command about the pool prints as JSON."""
        done = subprocess.run(
            [*GPUPOOL, *command, "--json"],
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise NotSeenError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout)

    def session(self, id: str = "") -> Found:
        """The one of this id; empty: the one that holds a share."""
        for one in self.listed("session", "list", "--closed")["sessions"]:
            found: Found = one
            if one["id"] == id or (not id and one["state"] == "attached"):
                return found
        raise NotSeenError(f"no session {id or 'holds a share'}")

    def until(self, holds: Callable[[], object], what: str, seconds: float = _PATIENCE) -> float:
        """How long it took, in seconds. Raises NotSeenError."""
        began = time.monotonic()
        while not holds():
            if self.process.poll() is not None or time.monotonic() - began > seconds:
                raise NotSeenError(f"{what}: not in {seconds:g} s; the program said: {self.text()[-800:]}")
            time.sleep(0.02)
        return round(time.monotonic() - began, 2)


@contextmanager
def _endless(bench: Bench, share: str, name: str) -> Iterator[Endless]:
    """It waits for its kernel."""
    launched, said = bench.folder / f"{name}-launched", bench.folder / f"{name}.log"
    launched.unlink(missing_ok=True)
    with bench.way.share(share) as (prefix, environment), said.open("wb") as file:
        process = subprocess.Popen(
            [*prefix, sys.executable, str(PROGRAM), str(_KERNEL_SECONDS), str(launched)],
            env={**environment, **bench.remote},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            process_group=0,
        )
        try:
            endless = Endless(process, said, environment)
            endless.until(launched.exists, "the launch", bench.time.of(_PATIENCE))
            yield endless
        finally:
            end_group(process)


def released(bench: Bench) -> Found:
    """The lists name the kernel and count it; after its lease nothing of it computes."""
    with _endless(bench, "0.5", "long-released") as endless:
        usage: Found = {}

        def named() -> bool:
            usage.update(endless.session()["usage"])
            return bool(usage["work"] == "running" and usage["work_seconds"] >= _NAMED_SECONDS)

        endless.until(named, "a kernel in the lists")
        session = endless.session()
        began = time.monotonic()
        endless.listed("lease", "release", session["lease_id"])
        took = round(time.monotonic() - began, 2)
        session = endless.session(session["id"])
        try:
            endless.process.wait(bench.time.of(_PATIENCE))
        except subprocess.TimeoutExpired as error:
            raise NotSeenError("the program still waits") from error
        found: Found = {
            "kernel": usage["kernel"],
            "busy": usage["busy"],
            "device_seconds": session["usage"]["device_seconds"],
            "release_seconds": took,
            "session": [session["state"], session["reason"]],
            "program": endless.text().strip()[-300:],
        }
    found["counted"] = usage["busy"] > 0.5 and found["device_seconds"] >= usage["work_seconds"]
    return found


def interrupted(bench: Bench) -> Found:
    """An interrupt says what runs; the second one ends the session, and the program goes on."""
    with _endless(bench, "0.5", "long-interrupted") as endless:
        time.sleep(1)  # in the call
        os.killpg(endless.process.pid, signal.SIGINT)
        told = endless.until(lambda: "Interrupt again" in endless.text(), "an answer to the interrupt")
        time.sleep(0.3)
        os.killpg(endless.process.pid, signal.SIGINT)
        began = time.monotonic()
        try:
            endless.process.wait(bench.time.of(_PATIENCE))
        except subprocess.TimeoutExpired as error:
            raise NotSeenError("the program waits after two interrupts") from error
        took = round(time.monotonic() - began, 2)
        return {
            "told_seconds": told,
            "ended_seconds": took,
            "status": endless.process.returncode,
            "told": endless.text().strip()[-600:],
        }


def next_one(bench: Bench) -> Found:
    """The whole device computes for the next program."""
    with bench.way.share("1.0") as (prefix, environment):
        return run(
            *(PROGRAM, prefix, {**environment, **bench.remote}, "0.01", str(bench.folder / "long-next")),
            seconds=bench.time.of(_PATIENCE),
            log=bench.folder / "long-next.log",
        )


def long_kernels(bench: Bench) -> Found:
    """Raises LeftOut."""
    if not bench.way.pool:
        raise LeftOut("needs the pool")
    found: Found = {}
    steps: Sequence[Callable[[Bench], Found]] = (released, interrupted)
    for step in steps:
        try:
            found[step.__name__] = step(bench)
        except NotSeenError as error:
            found[step.__name__] = {"error": str(error)[-1500:]}
        found[f"after_{step.__name__}"] = next_one(bench)
    in_order = all("error" not in one for one in found.values()) and all(
        found[f"after_{step.__name__}"]["result"] == 0 for step in steps
    )
    return {"ok": in_order and found["released"]["counted"] and found["interrupted"]["status"] == 0, **found}
