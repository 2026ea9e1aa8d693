"""Facts about processes that survive the reuse of their number.

A process id alone names nothing for long. Together with its start time and the boot it
belongs to it names one process, and a pidfd then stays bound to that process: signals sent
through it reach this process or nobody.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_PROC = Path("/proc")
# Fields of /proc/<pid>/stat after the command, proc(5): field 3 is the state, 22 the start.
_STATE = 0
_START_TICKS = 19


def boot_id() -> str:
    """The id of this boot of the machine; start times compare only within one."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Start time of a living process in clock ticks since boot; None when it is gone or a zombie."""
    try:
        # The command in parentheses may itself hold spaces and parentheses.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STATE] in (b"Z", b"X") else int(fields[_START_TICKS])


def open_pidfd(pid: int, expected_start_ticks: int) -> int | None:
    """A pidfd of exactly the process that had this id and start time; None when it is gone.

    The start time is read after the pidfd was opened: had the number been reused before or
    in between, the new process would show another start time.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if start_ticks(pid) != expected_start_ticks:
        os.close(pidfd)
        return None
    return pidfd


def send_signal(pidfd: int, number: signal.Signals) -> None:
    """Sends a signal; a process that has ended meanwhile is no error."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


def reap(pid: int) -> int | None:
    """Exit code (negative: signal) of an ended child; None when it is not our child."""
    try:
        waited, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if waited == pid else None


def describe_exit(exit_status: int | None) -> str:
    """``exit code 3``, ``signal SIGKILL`` or ``status unknown``."""
    if exit_status is None:
        return "status unknown"
    if exit_status >= 0:
        return f"exit code {exit_status}"
    try:
        return f"signal {signal.Signals(-exit_status).name}"
    except ValueError:
        return f"signal {-exit_status}"
