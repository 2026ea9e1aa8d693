"""Jobs as processes on this machine: the reference of the contract, and enough for one box whose GPUs others use too.

A job is found again by what its process carries in its environment from its beginning: the death of the pool at any
moment loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.providers.contract import (
    Capabilities,
    Description,
    JobOrder,
    JobReport,
    ProviderRefusedError,
    State,
)
from gpupool.providers.job_environment import for_an_agent
from gpupool.providers.job_logs import JobLogs
from gpupool.providers.jobs import JOB_NAME

#: What a job's process carries: the pool's name and the job's.
MARK: Final = "GPUPOOL_PROVIDER_JOB"
#: The same for the workers that it starts.
WORKER_MARK: Final = "GPUPOOL_PROVIDER_WORKER"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """What the provider of processes is told.

    Attributes:
        folder: for the files of jobs, of mode 0700.
        pool_id: marks this pool's jobs.
        agent: the agent's command without its name.
        gpus: what may be in its CUDA_VISIBLE_DEVICES, each given to one job at a time; empty: that is left as it is.
        time_limit: seconds that a job may run; None: no limit.
        grace: seconds between asking a process to end and making it.
        environment: what is added to the agent's.
    """

    folder: Path
    pool_id: str
    agent: Sequence[str]
    gpus: Sequence[str] = ()
    time_limit: float | None = None
    grace: float = 20.0
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Process:
    """An agent of a job, or one of its workers."""

    pid: int
    job: str
    gpus: tuple[str, ...]
    is_agent: bool


class LocalProvider:
    """Processes of this machine."""

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._logs = JobLogs(settings.folder)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._asked_to_end: dict[str, float] = {}
        self.capabilities = Capabilities(
            time_limit_known=settings.time_limit is not None, holds_until_confirmed=True
        )

    async def describe(self) -> Description:
        gpus = ", ".join(self._settings.gpus)
        return Description("processes of this machine", f"GPUs {gpus}" if gpus else "")

    async def submit(self, order: JobOrder) -> State:
        owned = self._owned()
        if order.job in owned:
            return owned[order.job]
        taken = {gpu for process in self._processes() for gpu in process.gpus}
        free = [gpu for gpu in self._settings.gpus if gpu not in taken]
        if self._settings.gpus and len(free) < order.devices:
            raise ProviderRefusedError(
                f"{len(free)} of this machine's {len(self._settings.gpus)} GPU(s) are free"
            )
        gpus = free[: order.devices] if self._settings.gpus else []
        environment = {
            **for_an_agent(os.environ),
            **(self._settings.environment or {}),
            MARK: self._mark(order.job, gpus),
        }
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        return await asyncio.to_thread(self._start, order, gpus, environment)

    def _start(self, order: JobOrder, gpus: list[str], environment: Mapping[str, str]) -> State:
        log_file = self._logs.path(order.job)
        try:
            self._logs.prepare()
            with log_file.open("ab") as log:
                child = subprocess.Popen(
                    [*self._settings.agent, "--name", order.node],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise ProviderRefusedError(f"the agent cannot be started: {error}") from error
        self._children[order.job] = child
        return {"pid": child.pid, "started": _started(child.pid) or 0, "gpus": gpus}

    async def poll(self, jobs: Mapping[str, State]) -> Mapping[str, JobReport]:
        return {job: self._report(job, state) for job, state in jobs.items()}

    async def cancel(self, job: str, state: State) -> None:
        state = state or self._owned().get(job, {})
        if not state or self._report(job, state, watch=False).phase == "ended" or not self._lives(state):
            return
        first = self._asked_to_end.setdefault(job, time.monotonic())
        with contextlib.suppress(ProcessLookupError):
            if time.monotonic() - first >= self._settings.grace:
                os.killpg(state["pid"], signal.SIGKILL)
            else:
                os.kill(state["pid"], signal.SIGTERM)

    async def list_owned(self) -> Mapping[str, State]:
        return await asyncio.to_thread(self._owned)

    async def close(self) -> None:
        pass

    def _report(self, job: str, state: State, *, watch: bool = True) -> JobReport:
        child = self._children.get(job)
        code = None if child is None else child.poll()
        if code is not None or not self._lives(state):
            if code is None and child is not None:
                code = child.poll()  # it ended between the two looks
            if self._end_workers(job):
                return JobReport("running", "its agent has ended, its workers are being ended")
            self._children.pop(job, None)
            self._asked_to_end.pop(job, None)
            said = self._logs.last_line(job) if code else ""
            self._logs.remove_old()
            return JobReport("ended", _how_ended(code) + (f": {said}" if said else ""))
        limit = self._settings.time_limit
        if limit is None:
            return JobReport("running")
        left = limit - _age(state["started"])
        if watch and left <= 0:
            first = self._asked_to_end.setdefault(job, time.monotonic())
            hard = time.monotonic() - first >= self._settings.grace
            with contextlib.suppress(ProcessLookupError):
                os.killpg(state["pid"], signal.SIGKILL if hard else signal.SIGTERM)
        return JobReport("running", seconds_left=max(0.0, left))

    def _owned(self) -> dict[str, State]:
        return {
            process.job: {
                "pid": process.pid,
                "started": _started(process.pid) or 0,
                "gpus": list(process.gpus),
            }
            for process in self._processes()
            if process.is_agent
        }

    def _end_workers(self, job: str) -> bool:
        """Ends what an agent that is gone has left on its GPUs, which others get next; whether there was something.

        No other agent adopts it: the name of its node does not come again.
        """
        left = [process for process in self._processes() if process.job == job and not process.is_agent]
        for process in left:
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(process.pid)
                try:
                    if self._process(process.pid) == process:  # and not one that came by its number since
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                finally:
                    os.close(descriptor)
        return bool(left)

    def _processes(self) -> list[_Process]:
        """Agents and workers of this pool's jobs."""
        numbers = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
        return [process for pid in numbers if (process := self._process(pid)) is not None]

    def _process(self, pid: int) -> _Process | None:
        try:
            name, mark = _mark_of(pid)
        except OSError:
            return None  # it has ended meanwhile, or is somebody else's
        pool_id, _, rest = mark.partition("/")
        job, _, gpus = rest.partition("/")
        if pool_id != self._settings.pool_id or not JOB_NAME.fullmatch(job):
            return None
        return _Process(pid, job, tuple(gpu for gpu in gpus.split(",") if gpu), name == MARK)

    def _mark(self, job: str, gpus: Sequence[str]) -> str:
        return f"{self._settings.pool_id}/{job}/{','.join(gpus)}"

    @staticmethod
    def _lives(state: State) -> bool:
        """Whether the very process lives: numbers of processes come again, with another start."""
        return bool(_started(state["pid"]) == state["started"])


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields


def _started(pid: int) -> int | None:
    """When a living process began, in ticks since boot."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _age(started: int) -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICKS


def _mark_of(pid: int) -> tuple[str, str]:
    """Which mark it carries, and what that says; empty: none. Agents and workers lead sessions of their own."""
    fields = _stat(pid)
    if fields is None or int(fields[3]) != pid:
        return "", ""
    for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in (MARK.encode(), WORKER_MARK.encode()):
            return name.decode(), value.decode(errors="replace")
    return "", ""


def _how_ended(code: int | None) -> str:
    if code is None:
        return "its process has ended"
    if code < 0:
        return f"its process was ended by signal {-code}"
    return f"its process ended with exit code {code}"
