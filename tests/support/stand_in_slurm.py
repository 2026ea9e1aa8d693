"""Slurm's commands over processes of this machine, where no Slurm is installed: jobs start at once, and none is refused.

`make slurm-check` runs the same tests on a real Slurm.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo")


def install(folder: Path) -> Path:
    """The folder of commands whose jobs are kept in `folder`; the same `folder` is the same cluster."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (folder / "jobs").mkdir()
    for name in COMMANDS:
        command = shlex.join([sys.executable, "-S", __file__, str(folder / "jobs"), name])
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    return programs


def living(folder: Path) -> dict[str, int]:
    """Names of the jobs that run, with their process groups."""
    return {job["name"]: job["pid"] for job in _jobs(folder / "jobs") if job["state"] == "RUNNING"}


def _jobs(jobs: Path) -> list[dict[str, object]]:
    found = []
    for file in sorted(jobs.glob("*.json")):
        job = json.loads(file.read_text())
        ended = file.with_suffix(".code")
        if _lives(job["pid"]):
            job["state"] = "RUNNING"
        elif ended.exists():
            job["state"] = "COMPLETED" if ended.read_text().strip() == "0" else "FAILED"
        else:
            job["state"] = "CANCELLED"
        found.append({**job, "number": file.stem})
    return found


def _lives(group: int) -> bool:
    """Whether a process of the group does; zombies do not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            return True
    return False


def _sbatch(jobs: Path, arguments: list[str]) -> None:
    said = dict(part.lstrip("-").split("=", 1) for part in arguments if "=" in part)
    number = str(1 + len(list(jobs.glob("*.sh"))))
    script = jobs / f"{number}.sh"
    script.write_text(sys.stdin.read())
    words = f"bash {shlex.quote(str(script))}; echo $? > {shlex.quote(str(jobs / f'{number}.code'))}"
    with Path(said["output"].replace("%%", "%")).open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "SLURM_JOB_ID": number},
            start_new_session=True,
        )
    (jobs / f"{number}.json").write_text(json.dumps({"name": said["job-name"], "pid": process.pid}))
    print(number)


def _squeue(jobs: Path, arguments: list[str]) -> None:
    for job in _jobs(jobs):
        print(f"{job['number']}|{job['name']}|{job['state']}|UNLIMITED|{int(time.time())}|None")


def _scancel(jobs: Path, arguments: list[str]) -> None:
    for job in _jobs(jobs):
        if job["number"] == arguments[0] and job["state"] == "RUNNING":
            os.killpg(int(str(job["pid"])), signal.SIGTERM)


def _sinfo(jobs: Path, arguments: list[str]) -> None:
    print("slurm 0.0 (stand-in)")


if __name__ == "__main__":
    folder, name, *rest = sys.argv[1:]
    {"sbatch": _sbatch, "squeue": _squeue, "scancel": _scancel, "sinfo": _sinfo}[name](Path(folder), rest)
