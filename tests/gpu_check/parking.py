"""Device memory goes to the host and back on the driver at hand: bytes, a PyTorch model, seconds per GiB, MPS, other devices.

Every part says what it found; one that the machine has no means for says that it was left out.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpupool.client.child_environment import environment as environment_of
from gpupool.engines.mps import MpsUnusableError, find_daemon, partition

from benchmarks.lone_session import LoneSession, lone_session
from benchmarks.park_session import MIB, Client, ask, attach, move, python_path
from benchmarks.worker_process import WorkerError, probe

Found = dict[str, Any]


def check(driver: Path, environment: Mapping[str, str] | None = None) -> dict[str, Found]:
    """All parts; a failed one has ``error``, one that was left out has ``left_out``."""
    parts: dict[str, Callable[[Path, Mapping[str, str] | None], Found]] = {
        "bytes": every_byte,
        "room": room_for_others,
        "torch": torch_model,
        "elsewhere": another_device,
        "scrubbed": nothing_is_left_behind,
        "mps": beside_mps,
        "mps_parts": parts_of_mps,
    }
    found: dict[str, Found] = {}
    for name, part in parts.items():
        started = time.monotonic()
        try:
            found[name] = part(driver, environment)
        except _LeftOut as why:
            found[name] = {"left_out": str(why)}
        except (MpsUnusableError, WorkerError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            found[name] = {"error": str(error)[-1500:]}
        found[name]["seconds"] = round(time.monotonic() - started, 2)
    return found


@contextlib.contextmanager
def _session(driver: Path, mib: int, environment: Mapping[str, str] | None) -> Iterator[LoneSession]:
    with (
        tempfile.TemporaryDirectory(prefix="gpucheck-") as name,
        lone_session(Path(name), driver, mib, environment=environment) as session,
    ):
        try:
            yield session
        except WorkerError as error:
            raise WorkerError(f"{error}\n{session.log()[-1000:]}") from error


def every_byte(driver: Path, environment: Mapping[str, str] | None) -> Found:
    """1 GiB there and back, three times, with the seconds per GiB beside a copy in host memory."""
    with _session(driver, 1536, environment) as session:
        obstacle = session.worker.stats()["park"]
        if obstacle != "ok":
            return {"left_out": f"this driver cannot: {obstacle}"}
        return move(session, 1024, 3)


def _device_used_mib() -> list[int] | None:
    """What each NVIDIA device has in use, by all processes; None without nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return [int(line) for line in done.stdout.split()] if done.returncode == 0 else None


def room_for_others(driver: Path, environment: Mapping[str, str] | None) -> Found:
    """While the memory is in the host, the device really has the room, the context's own included."""
    with _session(driver, 1536, environment) as session, Client(session.environment(python_path())) as client:
        before = _device_used_mib()
        if before is None:
            return {"left_out": "no nvidia-smi"}
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


def torch_model(driver: Path, environment: Mapping[str, str] | None) -> Found:
    """Outputs and optimiser state of a model are the same bit for bit afterwards."""
    if importlib.util.find_spec("torch") is None:
        return {"left_out": "no PyTorch"}
    with _session(driver, 3072, environment) as session:
        # Our runtime API must be there before PyTorch brings its own.
        variables = dict(os.environ) | environment_of(None, session.file.path, preload=True)
        with subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("torch_model.py"))],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None

            def say(line: str) -> Found:
                assert process.stdin is not None
                assert process.stdout is not None
                assert process.stderr is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(line + "\n")
                    process.stdin.flush()
                answer = process.stdout.readline()
                if not answer:
                    text = process.stderr.read()[-800:]
                    if "no kernel image" in text or "NoKernelImageForDevice" in text:
                        raise _LeftOut("this driver cannot run PyTorch's machine code")
                    raise WorkerError(f"the model's process ended: {text}")
                found: Found = json.loads(answer)
                return found

            try:
                before = say("compute")
                say("detach")
                ask(session, f"revoke epoch={session.worker.epoch}")
                began = time.perf_counter()
                parked = ask(session, f"park epoch={session.worker.epoch}")
                park_seconds = time.perf_counter() - began
                began = time.perf_counter()
                attach(session)
                resume_seconds = time.perf_counter() - began
                after = say("compute")
            except _LeftOut as reason:
                return {"left_out": str(reason)}
            finally:
                process.stdin.close()
        found = {
            "same": before["digest"] == after["digest"],
            "parked_mib": int(parked.split("bytes=")[1]) // MIB,
            "park_seconds": round(park_seconds, 3),
            "resume_seconds": round(resume_seconds, 3),
        }
        return found if found["same"] else found | {"error": "the model computes something else"}


class _LeftOut(Exception):
    """The machine has no means for this part."""


def another_device(driver: Path, environment: Mapping[str, str] | None) -> Found:
    """On a machine with two devices of one kind: resumed onto the other one, and the driver says so."""
    devices = probe(driver, environment)[1]
    others = [device for device in devices[1:] if device.name == devices[0].name]
    if not others:
        return {"left_out": "no second device of the same kind"}
    with _session(driver, 768, environment) as session, Client(session.environment(python_path())) as client:
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


def nothing_is_left_behind(driver: Path, environment: Mapping[str, str] | None) -> Found:
    """Memory that another session filled with a pattern and freed holds none of it for the next session."""
    with _session(driver, 1024, environment) as session, Client(session.environment(python_path())) as client:
        client.do("begin")
        client.do("mark 768 171")
    with _session(driver, 1024, environment) as session, Client(session.environment(python_path())) as client:
        client.do("begin")
        found: Found = client.do("search 768 171")
    return found if found["found"] == 0 else found | {"error": "bytes of another session were found"}


@contextlib.contextmanager
def _mps_daemon() -> Iterator[dict[str, str]]:
    """A daemon of our own, at a place of its own; what makes a process its client."""
    program = shutil.which("nvidia-cuda-mps-control")
    if program is None:
        raise _LeftOut("no MPS")
    with tempfile.TemporaryDirectory(prefix="gpumps-") as name:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{name}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{name}/log"}
        for place in places.values():
            Path(place).mkdir()
        daemon = dict(os.environ, **places)
        started = subprocess.run(
            [program, "-d"], env=daemon, capture_output=True, text=True, timeout=60, check=False
        )
        if started.returncode != 0:
            raise _LeftOut(f"the MPS daemon does not start: {(started.stdout + started.stderr)[-300:]}")
        try:
            yield places
        finally:
            subprocess.run([program], input="quit\n", env=daemon, text=True, timeout=60, check=False)


def beside_mps(driver: Path, environment: Mapping[str, str] | None) -> Found:
    """Whether a worker that is a client of MPS can be parked."""
    with _mps_daemon() as client, _session(driver, 1024, dict(environment or {}) | client) as session:
        # What it is, is the finding: a refusal is no failure, a lost byte or a hang is.
        try:
            return {"together": True} | move(session, 512, 1)
        except WorkerError as error:
            if "a byte was lost" in str(error):
                raise
            return {"together": False, "because": str(error)[-600:]}


def parts_of_mps(driver: Path, environment: Mapping[str, str] | None) -> Found:
    """Whether the node finds such a daemon, and what a part of the multiprocessors is worth: a session with a quarter
    of them fills memory so many times slower than one with all (where memory is the limit, less than four times)."""
    found: Found = {}
    with _mps_daemon() as client:
        found["found"] = str(find_daemon(Path(client["CUDA_MPS_PIPE_DIRECTORY"])).pipes)
        for milli in (1000, 250):
            settings = dict(environment or {}) | client | partition(milli)
            with (
                _session(driver, 1024, settings) as session,
                Client(session.environment(python_path())) as program,
            ):
                program.do("begin")
                program.do("mark 768 1")
                began = time.monotonic()
                for _ in range(20):
                    program.do("mark 768 1")
                found[f"seconds_{milli}"] = round(time.monotonic() - began, 3)
    found["ratio"] = round(found["seconds_250"] / found["seconds_1000"], 2)
    return found


def main() -> int:
    """For one driver, named as the first argument; prints what was found."""
    found = check(Path(sys.argv[1]))
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 1 if any("error" in part for part in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
