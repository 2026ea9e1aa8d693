"""Jobs of Slurm, by its own commands: a job is one batch script that runs one node agent.

Slurm stays the owner of the devices: it decides where a job runs, and sets CUDA_VISIBLE_DEVICES for it. Jobs are never put back
into the queue (`--no-requeue`): a second copy would start while the first one may still run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gpupool.providers.contract import (
    Capabilities,
    Description,
    JobOrder,
    JobReport,
    Phase,
    ProviderDownError,
    ProviderRefusedError,
    ProviderSilentError,
    State,
)
from gpupool.providers.job_environment import for_an_agent
from gpupool.providers.job_logs import JobLogs

_ANSWER_SECONDS: Final = 20.0
_COLUMNS: Final = "%i|%j|%T|%L|%S|%r"
#: Times as seconds since 1970: Slurm's own form has no time zone.
_ENVIRONMENT: Final = {"SLURM_TIME_FORMAT": "%s"}
#: Of a job in which the pool itself runs, such as a user's Jupyter server: its limits and devices are not those of new jobs.
_OF_THIS_JOB: Final = re.compile(r"(?!SLURM_(CONF|JWT)$)SLURM_.*|CUDA_VISIBLE_DEVICES")
#: Somebody's settings for typing: they hide jobs from `squeue`, have `scancel` ask back, and have `sbatch` wait or make arrays.
_FOR_TYPING: Final = re.compile(
    r"SQUEUE_.*|SCANCEL_.*|SBATCH_(ARRAY_INX|CLUSTERS|JOB_NAME|REQUEUE|WAIT|WAIT_ALL_NODES)"
)
_WAITS: Final = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
#: Any other state is one in which a job has its devices: a newer Slurm has states that are not known here.
_ENDED: Final = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
        "TIMEOUT",
    }
)  # fmt: skip
#: Why a job waits that no node and no hour will ever suit: what it was asked with has to change.
_NEVER: Final = re.compile(
    r"BadConstraints|DependencyNeverSatisfied|Invalid(Account|QOS)|(Account|QOS)NotAllowed|PartitionTimeLimit"
    r"|(Assoc|QOS)Max[A-Za-z]{1,40}PerJob(Limit)?"
)
_TIME: Final = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,2}):)?(\d{1,6}):(\d{2})", re.ASCII)
#: Seconds. Behind jobs without a time limit Slurm expects a start in a year, which is no expectation.
_FARTHEST_START: Final = 30 * 86_400.0
_MOMENT: Final = re.compile(r"[1-9]\d{8,10}", re.ASCII)
_JOB_NUMBER: Final = re.compile(r"\d{1,12}", re.ASCII)
#: Errors after which nothing is known: the controller does not answer.
_DOWN: Final = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "communication connection failure",
    "zero bytes were transmitted or received",
    "slurm backup controller in standby mode",
    "resource temporarily unavailable",
)


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """What the provider of Slurm jobs is told.

    Attributes:
        pool_id: marks this pool's jobs, in their names.
        agent: the agent's command on a compute node, without its name.
        partition: and the next four, as `sbatch` has them; empty: Slurm's default.
        gres: what one device is called: ``gpu``, ``gpu:h100``; empty: none is asked for.
        time_limit: minutes; None: the partition's.
        options: for `sbatch`, as they are.
        prolog: lines of the script before the agent: modules, environments.
        output: file for what the agent writes; Slurm's patterns are allowed. Empty: in `logs`, or nowhere.
        logs: where the pool reads what the agent has said last; None: it cannot.
        ca_file: the authority of the pool's certificate, on the compute nodes; empty: one that the system knows.
        advertise_host: shell word for the compute node's address, as kernels dial it.
        programs: folder of Slurm's commands; empty: the path is searched.
    """

    pool_id: str
    agent: Sequence[str]
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = "gpu"
    time_limit: int | None = None
    options: Sequence[str] = ()
    prolog: Sequence[str] = ()
    output: str = ""
    logs: JobLogs | None = None
    ca_file: str = ""
    advertise_host: str = '"$(hostname)"'
    programs: str = ""


class SlurmProvider:
    """Jobs of a Slurm cluster."""

    capabilities = Capabilities(time_limit_known=True, holds_until_confirmed=False, pending=True)

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self._prefix = f"gpupool-{settings.pool_id}-"

    async def describe(self) -> Description:
        version = (await self._run("sinfo", "--version")).strip()
        where = self._settings.partition or "the default"
        return Description(version[:60], f"partition {where}")

    async def submit(self, order: JobOrder) -> State:
        if self._settings.logs is not None:
            await asyncio.to_thread(self._prepare, self._settings.logs)
        answer = await self._run("sbatch", *self.arguments(order), given=self.script(order), submits=True)
        number = answer.strip().partition(";")[0]
        if not _JOB_NUMBER.fullmatch(number):
            raise ProviderDownError(f"sbatch answered {answer[:80]!r}, which is no job")
        return {"job": number}

    @staticmethod
    def _prepare(logs: JobLogs) -> None:
        try:
            logs.prepare()
            logs.remove_old()
        except OSError as error:
            raise ProviderRefusedError(f"{logs.folder} cannot be used: {error.strerror}") from error

    async def poll(self, jobs: Mapping[str, State]) -> Mapping[str, JobReport]:
        known = {job: report for job, (_, report) in (await self._queue()).items()}
        unknown = JobReport("ended", "Slurm does not know it any more")
        return {job: await self._with_last_line(job, known.get(job, unknown)) for job in jobs}

    async def _with_last_line(self, job: str, report: JobReport) -> JobReport:
        logs = self._settings.logs
        if report.phase != "ended" or logs is None:
            return report
        # In a thread: a network's file system may not answer.
        said = await asyncio.to_thread(logs.last_line, job)
        return replace(report, reason=f"{report.reason}: {said}") if said else report

    async def cancel(self, job: str, state: State) -> None:
        found = (await self._queue()).get(job)
        if found is None or found[1].phase == "ended":
            return
        await self._run("scancel", found[0])

    async def list_owned(self) -> Mapping[str, State]:
        queue = await self._queue()
        return {job: {"job": number} for job, (number, report) in queue.items() if report.phase != "ended"}

    async def close(self) -> None:
        pass

    def arguments(self, order: JobOrder) -> list[str]:
        """Of `sbatch`."""
        own = self._settings
        found = ["--parsable", "--no-requeue", "--nodes=1", "--ntasks=1"]
        # A % begins one of Slurm's patterns.
        written = "/dev/null" if own.logs is None else str(own.logs.path(order.job)).replace("%", "%%")
        found += [f"--job-name={self._prefix}{order.job}", f"--output={own.output or written}"]
        for name in ("partition", "account", "qos", "constraint"):
            if value := getattr(own, name):
                found.append(f"--{name}={value}")
        if own.gres:
            found.append(f"--gres={own.gres}:{order.devices}")
        if own.time_limit is not None:
            found.append(f"--time={own.time_limit}")
        return [*found, *own.options]

    def script(self, order: JobOrder) -> str:
        """What the job does: an agent with a home of its own, which goes with it."""
        own = self._settings
        agent = shlex.join([*own.agent, "--name", order.node])
        authority = [f"export GPUPOOL_CA_FILE={shlex.quote(own.ca_file)}"] if own.ca_file else []
        return "\n".join(
            [
                "#!/bin/bash",
                *authority,
                *own.prolog,
                # The folder for temporary files of the pool's machine need not exist here. `export` hides a failure.
                'GPUPOOL_HOME="$(mktemp -d "${TMPDIR:-/tmp}/gpupool-XXXXXX" 2>/dev/null || '
                'mktemp -d /tmp/gpupool-XXXXXX)" || exit 1',
                "export GPUPOOL_HOME",
                f"{agent} --listen-host 0.0.0.0 --advertise-host {own.advertise_host} &",
                "agent=$!",
                "trap 'kill -TERM \"$agent\" 2>/dev/null' TERM INT",
                # A trap interrupts `wait`: the agent ends its workers first.
                'while kill -0 "$agent" 2>/dev/null; do wait "$agent"; code=$?; done',
                'rm -rf -- "$GPUPOOL_HOME"',
                'exit "${code:-1}"',
                "",
            ]
        )

    async def _queue(self) -> dict[str, tuple[str, JobReport]]:
        """All jobs of this pool that Slurm still knows: their numbers, and how they are."""
        # --all: also jobs in hidden partitions, which Slurm hides from their own user too.
        text = await self._run(
            "squeue", "--me", "--all", "--noheader", "--states=all", f"--format={_COLUMNS}"
        )
        found: dict[str, tuple[str, JobReport]] = {}
        for line in text.splitlines():
            number, _, rest = line.strip().partition("|")
            name, _, rest = rest.partition("|")
            state, _, rest = rest.partition("|")
            left, _, rest = rest.partition("|")
            start, _, reason = rest.partition("|")
            job = name.removeprefix(self._prefix)
            if job != name and _JOB_NUMBER.fullmatch(number):
                found[job] = (number, report(state, left, start, reason, time.time()))
        return found

    async def _run(self, program: str, *arguments: str, given: str = "", submits: bool = False) -> str:
        """A command's output.

        Raises:
            ProviderDownError: nothing is known.
            ProviderRefusedError: Slurm will not have a job; only where `submits`.
        """
        path = str(Path(self._settings.programs) / program) if self._settings.programs else program
        try:
            process = await asyncio.create_subprocess_exec(
                path,
                *arguments,
                env={**_environment(), **_ENVIRONMENT},
                stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ProviderDownError(f"{program} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                out, err = await process.communicate(given.encode() if given else None)
        except TimeoutError:
            raise ProviderSilentError(f"{program} did not answer within {_ANSWER_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        if process.returncode == 0:
            return out.decode(errors="replace")
        said = " ".join(err.decode(errors="replace").split())[:300] or f"exit code {process.returncode}"
        problem = f"{program}: {said.removeprefix(f'{program}: error: ')}"
        if submits and not any(word in said.lower() for word in _DOWN):
            raise ProviderRefusedError(problem)
        raise ProviderDownError(problem)


def _environment() -> dict[str, str]:
    """For Slurm's commands; `sbatch` hands it on to the job."""
    return {
        name: value
        for name, value in for_an_agent(os.environ).items()
        if not _OF_THIS_JOB.fullmatch(name) and not _FOR_TYPING.fullmatch(name)
    }


def report(state: str, left: str, start: str, reason: str, now: float) -> JobReport:
    """What columns of `squeue` mean. `start` and `now` are seconds since 1970; Slurm expects no start of most jobs that wait."""
    phase: Phase = "pending" if state in _WAITS else "ended" if state in _ENDED else "running"
    words = "" if reason in ("None", "") else reason[:100]
    if phase == "ended":
        return JobReport("ended", f"{state} ({words})" if words else state)
    if phase == "running":
        return JobReport(phase, words, seconds_left=seconds_of(left))
    expected = max(0.0, float(start) - now) if _MOMENT.fullmatch(start) else None
    known = expected is not None and expected <= _FARTHEST_START
    never = _NEVER.fullmatch(words) is not None
    return JobReport(phase, words, starts_in=expected if known else None, never=never)


def seconds_of(text: str) -> float | None:
    """Seconds of ``1-02:03:04``, ``2:03:04`` or ``3:04``; None for what is no time, such as UNLIMITED."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
