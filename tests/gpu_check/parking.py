"""Device memory goes to the host and back on the driver at hand: bytes, a PyTorch model, seconds per GiB, MPS, other devices.

A program that does one part and prints what it found. Arguments: the driver, the part, and an empty folder with a short
path, where sockets and logs stay.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpupool.client.child_environment import environment as environment_of
from gpupool.engines.mps import find_daemon, partition

from benchmarks.lone_session import LoneSession, lone_session
from benchmarks.park_session import MIB, Client, ask, attach, move, python_path
from benchmarks.worker_process import WorkerError, probe
from tests.gpu_check.machine_code import need_machine_code
from tests.gpu_check.time_left import LeftOut

Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """The driver that a part is about, and the folder of its sockets and logs."""

    driver: Path
    home: Path


@contextlib.contextmanager
def _session(place: Place, mib: int, more: Mapping[str, str] | None = None) -> Iterator[LoneSession]:
    folder = Path(tempfile.mkdtemp(dir=place.home))
    with lone_session(folder, place.driver, mib, environment=more) as session:
        try:
            yield session
        except WorkerError as error:
            raise WorkerError(f"{error}\n{session.log()[-1000:]}") from error


def every_byte(place: Place) -> Found:
    """1 GiB there and back, three times, with the seconds per GiB beside a copy in host memory."""
    with _session(place, 1536) as session:
        obstacle = session.worker.stats()["park"]
        if obstacle != "ok":
            raise LeftOut(f"this driver cannot: {obstacle}")
        return move(session, 1024, 3)


def _device_used_mib() -> list[int] | None:
    """What each NVIDIA device has in use, by all processes; None without nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return [int(line) for line in done.stdout.split()] if done.returncode == 0 else None


def room_for_others(place: Place) -> Found:
    """While the memory is in the host, the device really has the room, the context's own included."""
    with _session(place, 1536) as session, Client(session.environment(python_path())) as client:
        before = _device_used_mib()
        if before is None:
            raise LeftOut("no nvidia-smi")
        client.do("begin")
        client.do("fill 1024")
        held = _device_used_mib()
        client.do("detach")
        ask(session, f"revoke epoch={session.worker.epoch}")
        ask(session, f"park epoch={session.worker.epoch}")
        parked = _device_used_mib()
        attach(session)
        if not client.do("read")["same"]:
            raise WorkerError("a byte was lost")
        assert held is not None
        assert parked is not None
        context = max(h - b for h, b in zip(held, before, strict=True)) - 1024
        left = max(p - b for p, b in zip(parked, before, strict=True))
        found: Found = {"context_mib": context, "left_on_device_mib": left}
        if left > 64:
            found["error"] = f"{left} MiB of the device were still in use"
        return found


def torch_model(place: Place) -> Found:
    """Outputs and optimiser state of a model are the same bit for bit afterwards."""
    if importlib.util.find_spec("torch") is None:
        raise LeftOut("no PyTorch")
    try:
        with _session(place, 3072) as session:
            # Our runtime API must be there before PyTorch brings its own.
            variables = dict(os.environ) | environment_of(None, session.file.path, preload=True)
            with Client(variables, [str(Path(__file__).with_name("torch_model.py"))]) as model:
                before = model.do("compute")
                model.do("detach")
                ask(session, f"revoke epoch={session.worker.epoch}")
                began = time.perf_counter()
                parked = ask(session, f"park epoch={session.worker.epoch}")
                park_seconds = time.perf_counter() - began
                began = time.perf_counter()
                attach(session)
                resume_seconds = time.perf_counter() - began
                after = model.do("compute")
    except WorkerError as error:
        need_machine_code(error, real="softgpu" not in place.driver.parts)
        raise
    found = {
        "same": before["digest"] == after["digest"],
        "parked_mib": int(parked.split("bytes=")[1]) // MIB,
        "park_seconds": round(park_seconds, 3),
        "resume_seconds": round(resume_seconds, 3),
    }
    return found if found["same"] else found | {"error": "the model computes something else"}


def another_device(place: Place) -> Found:
    """On a machine with two devices of one kind: resumed onto the other one, and the driver says so."""
    devices = probe(place.driver)[1]
    others = [device for device in devices[1:] if device.name == devices[0].name]
    if not others:
        raise LeftOut("no second device of the same kind")
    with _session(place, 768) as session, Client(session.environment(python_path())) as client:
        client.do("begin")
        client.do("fill 256")
        before = _device_used_mib()
        client.do("detach")
        ask(session, f"revoke epoch={session.worker.epoch}")
        ask(session, f"park epoch={session.worker.epoch}")
        attach(session, f"device=0:{others[0].uuid}")
        client.do("kernel")
        if not client.do("read")["same"]:
            raise WorkerError("a byte was lost on the way to another device")
        return {"used_mib_before": before, "used_mib_after": _device_used_mib()}


def nothing_is_left_behind(place: Place) -> Found:
    """Memory that another session filled with a pattern and freed holds none of it for the next session."""
    with _session(place, 1024) as session, Client(session.environment(python_path())) as client:
        client.do("begin")
        client.do("mark 768 171")
    with _session(place, 1024) as session, Client(session.environment(python_path())) as client:
        client.do("begin")
        found: Found = client.do("search 768 171")
    return found if found["found"] == 0 else found | {"error": "bytes of another session were found"}


@contextlib.contextmanager
def _mps_daemon() -> Iterator[dict[str, str]]:
    """A daemon of our own, at a place of its own; what makes a process its client."""
    program = shutil.which("nvidia-cuda-mps-control")
    if program is None:
        raise LeftOut("no MPS")
    with tempfile.TemporaryDirectory(prefix="gpumps-") as name:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{name}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{name}/log"}
        for place in places.values():
            Path(place).mkdir()
        daemon = dict(os.environ, **places)
        started = subprocess.run(
            [program, "-d"], env=daemon, capture_output=True, text=True, timeout=60, check=False
        )
        if started.returncode != 0:
            raise LeftOut(f"the MPS daemon does not start: {(started.stdout + started.stderr)[-300:]}")
        try:
            yield places
        finally:
            subprocess.run([program], input="quit\n", env=daemon, text=True, timeout=60, check=False)


def beside_mps(place: Place) -> Found:
    """Whether a worker that is a client of MPS can be parked."""
    with _mps_daemon() as client, _session(place, 1024, client) as session:
        # What it is, is the finding: a refusal is no failure, a lost byte or a hang is.
        try:
            return {"together": True} | move(session, 512, 1)
        except WorkerError as error:
            if "a byte was lost" in str(error):
                raise
            return {"together": False, "because": str(error)[-600:]}


def parts_of_mps(place: Place) -> Found:
    """Whether the node finds such a daemon, and what a part of the multiprocessors is worth.

    How many times as long a session with a quarter of them computes as one with all (about four times), and fills memory
    (less, where memory is the limit).
    """
    found: Found = {}
    seconds: dict[int, Found] = {}
    rates = str(Path(__file__).with_name("mps_rates.py"))
    with _mps_daemon() as client:
        found["found"] = str(find_daemon(Path(client["CUDA_MPS_PIPE_DIRECTORY"])).pipes)
        for milli in (1000, 250):
            with (
                _session(place, 1024, client | partition(milli)) as session,
                Client(session.environment(python_path()), [rates]) as program,
            ):
                seconds[milli] = program.do("measure")
    for what in ("fill", "compute"):
        found |= {f"{what}_seconds_{milli}": of[what] for milli, of in seconds.items()}
        found[f"{what}_ratio"] = round(seconds[250][what] / max(1e-4, seconds[1000][what]), 2)
    return found


PARTS: Final[Mapping[str, Callable[[Place], Found]]] = {
    "bytes": every_byte,
    "room": room_for_others,
    "torch": torch_model,
    "elsewhere": another_device,
    "scrubbed": nothing_is_left_behind,
    "mps": beside_mps,
    "mps_parts": parts_of_mps,
}


def part(name: str, place: Place) -> Found:
    """What was found; ``error`` says what was wrong, ``left_out`` why nothing was tried."""
    try:
        return PARTS[name](place)
    except LeftOut as why:
        return {"left_out": str(why)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[-1500:]}


def main() -> int:
    # Workers and daemons of a part that takes too long are ended with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    driver, name, home = sys.argv[1:]
    sys.stdout.write(json.dumps(part(name, Place(Path(driver), Path(home)))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
