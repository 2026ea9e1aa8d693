"""A process that measures the software GPU: one line of JSON asks, one line answers.

``python -m benchmarks.softgpu_process DRIVER LOOPS``. A driver reads its settings once, so each combination of
settings has a process of its own, and a parent that asks them in turn compares under the same load.

Questions: ``{"work": key, "repeats": n}`` gives ``{"native": [seconds, …], "device": [seconds, …]}``, in pairs
taken one after the other, with ``"core": c`` on that core alone once everything is warm; ``{"row": key, "repeats": n}``
gives those of the device only, launched one after the other; ``{"check": key}`` gives
``{"error": …}`` without timing; ``{"launches": n}`` gives ``{"each_us": …, "waited_us": …}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import softgpu_native
from benchmarks.softgpu_device import Device
from benchmarks.softgpu_workloads import Workload, Workloads

#: A kernel runs so often, and so long, before it is timed: a compiler in the background has had its chance.
_WARM_LAUNCHES: Final = 12
_WARM_SECONDS: Final = 1.0


class WrongResultError(RuntimeError):
    """The device did not compute what the C loop computes."""


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _check(name: str, work: Workload) -> float:
    work.prepare()
    work.native()
    work.device()
    error = work.error()
    if not error <= work.tolerance:
        raise WrongResultError(f"{name}: the results differ by {error:g}, allowed is {work.tolerance:g}")
    return error


def _warm_up(work: Workload) -> None:
    begin = time.monotonic()
    launches = 0
    while launches < _WARM_LAUNCHES or time.monotonic() < begin + _WARM_SECONDS:
        work.device()
        launches += 1
        if time.monotonic() > begin + 20 * _WARM_SECONDS:  # too slow to be worth more
            return


@contextlib.contextmanager
def _alone_on(core: int | None) -> Iterator[None]:
    """All threads of this process on one core: who waits for a kernel is not woken on another one.

    Not while kernels are compiled, which happens in a process of its own that would inherit it.
    """
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        _move_threads({core})
        yield
    finally:
        _move_threads(before)


def _move_threads(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread.name), cores)


class _Answers:
    def __init__(self, driver: Path, library: Path) -> None:
        self._workloads = Workloads(Device(driver), softgpu_native.load(library))
        self._made: dict[str, Workload] = {}

    def _warm(self, name: str) -> Workload:
        if name not in self._made:
            work = self._made[name] = self._workloads.make(name)
            _check(name, work)  # as the first launch computes it
            _warm_up(work)
            _check(name, work)  # and as the last ones do
        return self._made[name]

    def work(self, name: str, repeats: int, core: int | None = None) -> dict[str, Any]:
        work = self._warm(name)
        native, device = [], []
        with _alone_on(core):
            for _ in range(repeats):
                native.append(_seconds(work.native))
                device.append(_seconds(work.device))
        return {"native": native, "device": device, "units": work.units}

    def row(self, name: str, repeats: int, core: int | None = None) -> dict[str, Any]:
        work = self._warm(name)
        with _alone_on(core):
            return {"device": [_seconds(work.device) for _ in range(repeats)]}

    def check(self, name: str) -> dict[str, Any]:
        work = self._workloads.make(name)
        return {"error": _check(name, work), "units": work.units}

    def launches(self, count: int) -> dict[str, Any]:
        self._workloads.seconds_of_launches(count, wait_each=False)
        each = self._workloads.seconds_of_launches(count, wait_each=False)
        waited = self._workloads.seconds_of_launches(count, wait_each=True)
        return {"each_us": 1e6 * each / count, "waited_us": 1e6 * waited / count}


def main() -> int:
    """Answers until its input ends."""
    answers = _Answers(Path(sys.argv[1]), Path(sys.argv[2]))
    for line in sys.stdin:
        asked = json.loads(line)
        if "launches" in asked:
            answer = answers.launches(asked["launches"])
        elif "row" in asked:
            answer = answers.row(asked["row"], asked["repeats"], asked.get("core"))
        elif "check" in asked:
            answer = answers.check(asked["check"])
        else:
            answer = answers.work(asked["work"], asked["repeats"], asked.get("core"))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
