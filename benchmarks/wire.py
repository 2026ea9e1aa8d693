"""``gpupool bench wire``: the client runtime and a worker on loopback, beside a raw socket, in one run."""

from __future__ import annotations

import json as json_text
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from gpupool.client.native import native_file
from gpupool.client.session_file import SessionFile

from benchmarks.client_process import client_environment, write_attached
from benchmarks.results import Target, beside_bounds, machine, publish
from benchmarks.worker_process import WorkerError, WorkerProcess, probe, software_driver

#: The measured ratio or time, what it is, and the bound that the project set itself.
TARGETS: Final[tuple[Target, ...]] = (
    ("ask_ratio", "blocking call / raw ping-pong", "<=", 1.2),
    ("post_us", "posted call, client time in microseconds", "<=", 0.4),
    ("alloc_free_us", "allocate and free, microseconds", "<=", 0.8),
    ("event_us", "create and destroy an event, microseconds", "<=", 0.6),
    ("post_per_s", "posted calls executed per second", ">=", 1e6),
    ("h2d_ratio", "copy to the device / raw stream", ">=", 0.95),
    ("d2h_ratio", "copy from the device / raw stream", ">=", 0.95),
    ("shm_ask_us", "blocking call over shared memory, microseconds", "<=", 6.0),
    ("shm_copy_ratio", "copy over shared memory / memcpy in one process", ">=", 0.8),
)
_LIMIT_SECONDS: Final = 300.0


def measure(driver: Path | None = None, rounds: int = 40) -> dict[str, Any]:
    """Runs the measurement.

    Args:
        driver: the driver behind the worker; None: the software GPU.
        rounds: how often each pair is measured; the figures are medians.

    Returns:
        The keys of :data:`TARGETS`, the raw figures behind them (microseconds, MB/s) and ``machine``.

    Raises:
        WorkerError: worker or benchmark program failed.
        RuntimeMissingError: the native parts are not installed.
    """
    program = native_file("bin", "gpupool-bench-wire")
    driver = driver or software_driver()
    profile, devices = probe(driver)
    device = devices[0]
    with tempfile.TemporaryDirectory(prefix="gpupool-bench-") as name:
        folder = Path(name)
        profile_file = folder / "profile"
        profile_file.write_text(profile)
        session = SessionFile(folder / "session")
        shares = [(device, 1000, min(device.total_mib, 4096))]

        def run(worker: WorkerProcess, transport: str, *options: str) -> dict[str, Any]:
            write_attached(session, worker, profile_file)
            environment = client_environment(session, {"GPUPOOL_TRANSPORT": transport})
            return _run([str(program), "--rounds", str(rounds), *options], environment, worker)

        with WorkerProcess(folder, driver, shares) as worker:
            figures = run(worker, "tcp")
            shared = run(worker, "shm", "--transport")
        with WorkerProcess(folder, driver, shares, options=("--tls", "on")) as worker:
            encrypted = run(worker, "tcp", "--transport")
    figures |= {f"shm_{key}": value for key, value in shared.items()}
    figures |= {f"tls_{key}": value for key, value in encrypted.items()}
    figures["machine"] = machine()
    return figures


def _run(command: list[str], environment: dict[str, str], worker: WorkerProcess) -> dict[str, Any]:
    """What the benchmark program printed."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise WorkerError(f"the benchmark did not end in {_LIMIT_SECONDS:.0f} s") from late
    if done.returncode != 0:
        log = worker.log_path.read_text(errors="replace").strip()
        raise WorkerError("\n".join(filter(None, (done.stderr.strip(), log))))
    figures: dict[str, Any] = json_text.loads(done.stdout)
    return figures


def main(json: bool) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    return publish("wire", measure, report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people, one line each, with the bounds that they are held against."""
    lines = beside_bounds(TARGETS, figures, digits=2)
    lines.append(
        f"raw ping-pong {figures['ping_pong_us']:.1f} us, {figures['ask_call']} {figures['ask_us']:.1f} us; "
        f"raw stream {figures['raw_up_mb_s']:.0f} MB/s up, {figures['raw_down_mb_s']:.0f} MB/s down"
    )
    lines.append(
        f"shared memory: 64 MiB copies at {figures['shm_h2d_mb_s']:.0f} MB/s to the device, "
        f"{figures['shm_d2h_mb_s']:.0f} MB/s from it, memcpy {figures['shm_memcpy_mb_s']:.0f} MB/s"
    )
    lines.append(
        f"TLS: blocking call {figures['tls_ask_us']:.1f} us, copies at {figures['tls_h2d_mb_s']:.0f} MB/s to the "
        f"device, {figures['tls_d2h_mb_s']:.0f} MB/s from it"
    )
    where = figures["machine"]
    lines.append(
        f"{figures['device']} on {where['cpu']}, {where['cores']} cores, {where['kernel']}, {where['date']}"
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(json="--json" in sys.argv[1:]))
