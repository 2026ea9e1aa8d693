"""Compares programs on a remote share with the same programs on the driver itself.

Level "pool" goes the whole way: pool server, node agent, `gpupool run`. Where packages of the pool
are missing on an offline machine, level "worker" starts the worker by hand and writes the session
file itself; the level is printed with the result.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpupool.client.child_environment import environment as child_environment
from gpupool.client.child_environment import software_gpu_environment
from gpupool.node.math_libraries import MathLibraries, find

from tests.gpu_check import frameworks_check, parking
from tests.gpu_check.programs_run import run, same

ROOT = Path(__file__).resolve().parent.parent.parent
NATIVE = ROOT / "server" / "gpupool" / "_native"
PROGRAMS = Path(__file__).parent / "programs"
POOL_PACKAGES = ("grpc", "sqlalchemy", "structlog", "stamina", "typer", "rich")
Command = tuple[list[str], dict[str, str]]


def system_libcuda() -> Path:
    """Where the machine's own driver library is mapped from."""
    code = (
        "import ctypes; ctypes.CDLL('libcuda.so.1');"
        "print([l.split()[-1] for l in open('/proc/self/maps') if 'libcuda.so' in l][0])"
    )
    return Path(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
    )


@contextlib.contextmanager
def through_pool(driver: str, home: Path, share: str, _libraries: MathLibraries) -> Iterator[Command]:
    """Pool and node on loopback; yields the prefix that runs a command on a share."""
    environment = dict(os.environ, GPUPOOL_HOME=str(home))
    gpupool = [sys.executable, "-m", "gpupool.cli.main"]
    with (home / "services.log").open("w") as log:
        services = [
            subprocess.Popen([*gpupool, *arguments], env=environment, stdout=log, stderr=log)
            for arguments in (["pool", "serve"], ["node", "start", "--driver", driver])
        ]
        try:
            wait_for_node(gpupool, environment)
            yield [*gpupool, "run", "-p", share, "--wait", "60", "--"], environment
        finally:
            for service in reversed(services):
                service.terminate()
                service.wait(20)


def wait_for_node(gpupool: list[str], environment: dict[str, str], seconds: float = 120) -> None:
    """Returns when the pool lends a device; a cold driver takes its time. What else is wrong, the program says."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        nodes = subprocess.run(
            [*gpupool, "node", "list", "--json"], env=environment, capture_output=True, text=True, check=False
        )
        if nodes.returncode == 0 and any(json.loads(nodes.stdout)):
            return
        time.sleep(0.5)


@contextlib.contextmanager
def through_worker(driver: str, home: Path, share: str, libraries: MathLibraries) -> Iterator[Command]:
    """A worker by hand, its session file and the environment that makes a process use it."""
    library = NATIVE / "softgpu" / "libcuda.so.1" if driver == "software" else system_libcuda()
    worker = NATIVE / "bin" / "gpupool-worker"
    probe = subprocess.run(
        [worker, "--probe", "--driver", library], capture_output=True, text=True, check=True
    )
    (home / "profile").write_text(probe.stdout)
    fields = dict(
        line.split(" ", 1) for line in probe.stdout.splitlines() if " " in line and "attribute" not in line
    )
    milli = int(float(share) * 1000)
    mib = int(fields["total_mib"]) * milli // 1000
    session, token = secrets.token_hex(16), secrets.token_hex(32)
    deadline = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 1800 * 10**9
    with (home / "worker.log").open("w") as log:
        process = subprocess.Popen(
            [worker, "--driver", library, "--control", home / "control.sock", "--listen", "127.0.0.1:0"],
            env={**os.environ, **libraries.environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            record = {
                "session": session,
                "token": token,
                "epoch": "1",
                "device": f"0 {fields['uuid']} {milli} {mib}",
                "deadline_ns": str(deadline),
            }
            process.stdin.write("".join(f"{key} {value}\n" for key, value in record.items()) + "\n")
            process.stdin.close()
            ready = process.stdout.readline().split()
            if not ready or ready[0] != "ready":
                raise SystemExit(
                    f"the worker did not start: {' '.join(ready)} {(home / 'worker.log').read_text()}"
                )
            port = dict(field.split("=") for field in ready[1:])["port"]
            session_file = home / "session"
            session_file.touch(mode=0o600)
            session_file.write_text(
                f"version 1\nstate attached\nsession {session}\ngeneration 1\nepoch 1\n"
                f"address 127.0.0.1:{port}\ntoken {token}\nsoftware {fields['software']}\nprofile {home / 'profile'}\n"
            )
            environment = {**os.environ, **child_environment(NATIVE, session_file, os.environ, preload=True)}
            yield [], environment
        finally:
            process.terminate()
            process.wait(20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", default="nvidia", choices=["nvidia", "software"])
    parser.add_argument("--share", default="0.5")
    parser.add_argument("--only", default="", help="parts whose names hold this")
    parser.add_argument("--frameworks", action="store_true", help="frameworks on the software GPU, too")
    parser.add_argument("--minutes", type=float, default=5.0, help="after which no framework begins")
    options = parser.parse_args()

    missing = [name for name in POOL_PACKAGES if importlib.util.find_spec(name) is None]
    generated = (ROOT / "server" / "gpupool" / "proto" / "gpupool" / "v1" / "pool_pb2.py").exists()
    level = "worker" if missing or not generated else "pool"
    if level == "worker":
        print(f"gpu-check: level worker (missing for the pool: {', '.join(missing) or 'generated messages'})")

    libraries = find() if options.driver == "nvidia" else MathLibraries()
    local_environment = {**os.environ, **libraries.environment()}
    if options.driver == "software":
        local_environment = software_gpu_environment(NATIVE, os.environ)
    failures = 0
    report: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "level": level,
        "python": platform.python_version(),
        "driver": options.driver,
        "share": options.share,
        "math_libraries": dict(libraries.versions or {}),
        "programs": {},
    }
    programs = [path for path in sorted(PROGRAMS.glob("*.py")) if options.only in path.name]
    if options.driver == "nvidia" and libraries.missing:
        print(f"  --   math_libraries: this machine has no {', '.join(libraries.missing)}")
        programs = [path for path in programs if path.stem != "math_libraries"]
    with tempfile.TemporaryDirectory(prefix="gpucheck-") as temporary:
        way = through_pool if level == "pool" else through_worker
        for program in programs:
            home = Path(temporary) / program.stem
            home.mkdir(mode=0o700)
            local = run(program, [], local_environment)
            with way(options.driver, home, options.share, libraries) as (prefix, environment):
                remote = run(program, prefix, environment)
            equal = "error" not in local and same(local.get("result"), remote.get("result"))
            failures += not equal
            report["programs"][program.stem] = {"same": equal, "local": local, "remote": remote}  # type: ignore[index]
            print(
                f"  {'ok    ' if equal else 'FAILED'} {program.stem}: local {local['seconds']} s, remote {remote['seconds']} s"
            )
            if not equal:
                print(f"    local:  {json.dumps(local)[:800]}\n    remote: {json.dumps(remote)[:800]}")
                for log in sorted(home.glob("*.log")):
                    print(f"    {log.name}: {log.read_text()[-1500:]}")
    if options.only in "parking":
        library = NATIVE / "softgpu" / "libcuda.so.1" if options.driver == "software" else system_libcuda()
        parts = parking.check(library)
        report["parking"] = parts
        for name, found in parts.items():
            failures += "error" in found
            said = "FAILED" if "error" in found else "  --  " if "left_out" in found else "ok    "
            print(f"  {said} parking, {name}: {json.dumps(found)[:1200]}")
    out = ROOT / "build" / "gpu-check" / "report.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    if options.driver == "nvidia" or options.frameworks:

        @contextlib.contextmanager
        def on_share(share: str) -> Iterator[Command]:
            with (
                tempfile.TemporaryDirectory(prefix="gpucheck-") as home,
                way(options.driver, Path(home), share, libraries) as (prefix, environment),
            ):
                yield prefix, frameworks_check.environment_of_programs(environment)

        found = frameworks_check.check(
            on_share,
            frameworks_check.environment_of_programs(local_environment),
            out.parent,
            minutes=options.minutes,
            only=options.only,
            pool=level == "pool",
        )
        report["frameworks"] = found
        failures += frameworks_check.failures(found)
        print("\n".join(frameworks_check.lines(found)))
    out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"gpu-check: {failures} failed; report in {out.relative_to(ROOT)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
