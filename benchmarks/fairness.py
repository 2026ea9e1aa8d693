"""``gpupool bench fairness``: what sessions under full load get of one device, beside their shares.

Real workers with one book of turns, and a client process for each, on the software GPU. What a session gets is the
device time that its worker measured.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from gpupool.client.session_file import SessionFile

from benchmarks.client_process import client_environment, write_attached
from benchmarks.results import Target, beside_bounds, machine, publish
from benchmarks.worker_process import ProbedDevice, WorkerError, WorkerProcess, probe, software_driver

T = TypeVar("T")

#: The measured figure, what it is, and the bound that the project set itself.
TARGETS: Final[tuple[Target, ...]] = (
    ("share_error", "largest error of a share, relative", "<=", 0.03),
    ("lone", "of the device, a session that is alone", ">=", 0.97),
    ("strict_error", "largest error of a hard cap, relative", "<=", 0.03),
    ("long_error", "largest error of a share beside kernels of 10 s, relative", "<=", 0.03),
)
SECONDS: Final = 10.0

_LOAD: Final = Path(__file__).with_name("fairness_load.py")
_MIB: Final = 256
_SETTLE_SECONDS: Final = 1.0
_LIMIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """One session: its share, how it loads the device (``kernels graphs streams steps long endless``), and whether the
    share is a hard cap."""

    milli: int
    kind: str = "kernels"
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Got:
    """What a session got: device time, and its part of the time that passed."""

    load: Load
    device_seconds: float
    seconds: float

    @property
    def part(self) -> float:
        return self.device_seconds / self.seconds


#: Sessions that load one device together.
CONTESTS: Final[dict[str, tuple[Load, ...]]] = {
    "two": (Load(250), Load(750)),
    "two, one with graphs": (Load(250, "graphs"), Load(750)),
    "four": (Load(100), Load(200), Load(300), Load(400)),
    "four, of all kinds": (Load(100, "streams"), Load(200), Load(300, "graphs"), Load(400)),
}
#: Kernels of ten seconds beside short ones, watched for longer. The software GPU stops one when its turn is over; a
#: device that cannot has the others wait for two seconds, and what the kernel took is paid back.
LONG_CONTESTS: Final[dict[str, tuple[Load, ...]]] = {
    "a small share with kernels of 10 s": (Load(250, "long"), Load(750)),
    "a large share with kernels of 10 s": (Load(750, "long"), Load(250)),
}
#: So many times as long as other contests.
_LONG_TIMES: Final = 12
#: One that waits for each of its kernels does not want the device in between: it has no bound to keep.
STEPS: Final = (Load(750, "steps"), Load(250))
CAPS: Final = (Load(250, strict=True), Load(500, "graphs", strict=True))


class Session:
    """A worker and a client process that loads the device."""

    def __init__(
        self, folder: Path, driver: Path, device: ProbedDevice, profile: Path, load: Load, book: Path | None
    ) -> None:
        self.load = load
        self._stack = contextlib.ExitStack()
        self.worker = WorkerProcess(
            folder,
            driver,
            [(device, load.milli, _MIB)],
            enforcer=book,
            strict=load.strict,
            environment={"GPUPOOL_SOFTGPU_MEMORY_MIB": "4096"},
        )
        file = SessionFile(folder / "session")
        try:
            self._stack.enter_context(self.worker)
            write_attached(file, self.worker, profile)
            self.client = subprocess.Popen(
                [sys.executable, "-S", str(_LOAD), load.kind],
                env=client_environment(file),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self._stack.callback(self._end)
            assert self.client.stdout is not None
            if self.client.stdout.readline() != "ready\n":
                raise WorkerError(f"the load did not start: {self.client.communicate(timeout=10)[1].strip()}")
        except BaseException:
            self._stack.close()
            raise

    def begin(self) -> None:
        assert self.client.stdin is not None
        self.client.stdin.write("begin\n")
        self.client.stdin.flush()

    def device_seconds(self) -> float:
        """Measured so far. Raises WorkerError when the client has ended."""
        if self.client.poll() is not None:
            raise WorkerError(f"the load ended: {self.client.communicate(timeout=10)[1].strip()}")
        return int(self.worker.stats()["device_ns"]) / 1e9

    def finish(self) -> None:
        """Ends the load, and waits until the device has done all of it."""
        assert self.client.stdin is not None
        self.client.stdin.write("end\n")
        self.client.stdin.flush()
        self.client.wait(_LIMIT_SECONDS)
        deadline = time.monotonic() + _LIMIT_SECONDS
        while self.worker.stats()["in_flight"] != "0":
            if time.monotonic() > deadline:
                raise WorkerError("the device does not finish what it was given")
            time.sleep(0.01)

    def charged_seconds(self) -> float:
        """Of device time, so far; also of a client that has ended."""
        return int(self.worker.stats()["device_ns"]) / 1e9

    def close(self) -> None:
        self._stack.close()

    def _end(self) -> None:
        if self.client.poll() is None:
            self.client.kill()
        self.client.communicate(timeout=_LIMIT_SECONDS)


@contextlib.contextmanager
def sessions(loads: Sequence[Load], *, enforced: bool = True) -> Iterator[list[Session]]:
    """Sessions that share one software GPU, ready to begin.

    Raises:
        WorkerError: a worker or its client did not start.
        RuntimeMissingError: the native parts are not installed.
    """
    driver = software_driver()
    text, devices = probe(driver, {"GPUPOOL_SOFTGPU_MEMORY_MIB": "4096"})
    with tempfile.TemporaryDirectory(prefix="gpupool-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        profile = folder / "profile"
        profile.write_text(text)
        book = folder / devices[0].uuid
        book.touch(mode=0o600)
        running = []
        for number, load in enumerate(loads):
            place = folder / str(number)
            place.mkdir()
            session = Session(place, driver, devices[0], profile, load, book if enforced else None)
            stack.callback(session.close)
            running.append(session)
        yield running


def contest(
    loads: Sequence[Load], seconds: float, *, enforced: bool = True, settle: float = _SETTLE_SECONDS
) -> list[Got]:
    """Lets sessions load one device together for so long and measures what each got."""
    with sessions(loads, enforced=enforced) as running:
        for session in running:
            session.begin()
        time.sleep(settle)
        return watch(running, seconds)


def watch(running: Sequence[Session], seconds: float) -> list[Got]:
    """What sessions that run get in the next ``seconds``."""
    before = [(session.device_seconds(), time.monotonic()) for session in running]
    time.sleep(seconds)
    after = [(session.device_seconds(), time.monotonic()) for session in running]
    return [
        Got(session.load, end[0] - begin[0], end[1] - begin[1])
        for session, begin, end in zip(running, before, after, strict=True)
    ]


def occupied(running: Sequence[Session], during: Callable[[], T]) -> tuple[T, float]:
    """What `during` gives while all are under load, and which part of the time the device worked, as charged.

    Counted from before the first one began until nothing was left to do. So it is exact whatever kept a process from
    running meanwhile, and more than one says that sessions overlapped. What :func:`watch` gives is about a window of
    each session's own: work that was under way at its beginning counts, and where a worker answers late, its window is
    another one than the others'.
    """
    before = sum(session.charged_seconds() for session in running)
    began = time.monotonic()
    for session in running:
        session.begin()
    result = during()
    for session in running:
        session.finish()
    seconds = time.monotonic() - began
    return result, (sum(session.charged_seconds() for session in running) - before) / seconds


def share_errors(results: Sequence[Got]) -> list[float]:
    """How far each session's part of the device time is from its part of the shares, relative to it."""
    used = sum(result.part for result in results)
    shares = sum(result.load.milli for result in results)
    return [(result.part / used) / (result.load.milli / shares) - 1 for result in results]


def measure(seconds: float = SECONDS) -> dict[str, Any]:
    """Runs the measurement.

    Returns:
        The keys of :data:`TARGETS`, ``contests`` (each session's share, device time, part of all device time and
        error), ``caps``, ``busy`` (of a contest: part of the time in which the device worked), ``steps`` (part of the
        device time of a session with 0.75 that waits for each kernel), ``machine``.

    Raises:
        WorkerError: a worker or its client failed.
        RuntimeMissingError: the native parts are not installed.
    """
    contests = {name: _contest(loads, seconds) for name, loads in CONTESTS.items()}
    long = {name: _contest(loads, _LONG_TIMES * seconds) for name, loads in LONG_CONTESTS.items()}
    lone = contest([Load(250)], seconds / 2)[0]
    steps = contest(STEPS, seconds / 2)
    free = contest([Load(250)], seconds / 2, enforced=False)[0]
    caps = [contest([load], seconds)[0] for load in CAPS]
    return {
        "share_error": _worst(contests),
        "long_error": _worst(long),
        "lone": lone.part,
        "strict_error": max(abs(cap.part / (cap.load.milli / 1000) - 1) for cap in caps),
        "lone_not_enforced": free.part,
        "steps": steps[0].part / sum(result.part for result in steps),
        "contests": contests | long,
        "caps": [_row(cap) for cap in caps],
        "machine": machine(),
    }


def _contest(loads: Sequence[Load], seconds: float) -> dict[str, Any]:
    results = contest(loads, seconds)
    used = sum(result.part for result in results)
    return {
        "busy": used,
        "sessions": [
            {**_row(result), "of_all": result.part / used, "error": error}
            for result, error in zip(results, share_errors(results), strict=True)
        ],
    }


def _worst(contests: dict[str, Any]) -> float:
    return max(abs(float(row["error"])) for result in contests.values() for row in result["sessions"])


def _row(result: Got) -> dict[str, Any]:
    return {
        "share": result.load.milli / 1000,
        "kind": result.load.kind,
        "device_seconds": result.device_seconds,
        "of_time": result.part,
    }


def main(json: bool) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    return publish("fairness", measure, report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people."""
    lines = beside_bounds(TARGETS, figures, digits=4)
    for name, result in figures["contests"].items():
        lines += ["", f"{name}: the device worked {result['busy']:.1%} of the time"]
        lines += [
            f"  share {row['share']:.2f} {row['kind']:8}{row['device_seconds']:8.3f} s"
            f"{row['of_all']:9.2%} of all{row['error']:+9.2%}"
            for row in result["sessions"]
        ]
    lines += [
        "",
        f"share 0.75 that waits for each kernel, beside 0.25 under full load: {figures['steps']:.2%} of all",
        f"alone and not enforced: {figures['lone_not_enforced']:.2%} of the time",
    ]
    lines += [
        f"hard cap {row['share']:.2f} {row['kind']:8}{row['of_time']:9.2%} of the time"
        for row in figures["caps"]
    ]
    where = figures["machine"]
    lines.append(
        f"software GPU on {where['cpu']}, {where['cores']} cores, {where['kernel']}, {where['date']}"
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(json="--json" in sys.argv[1:]))
